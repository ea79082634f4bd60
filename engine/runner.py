"""Runs the target: tokens in, logits out, with a KV cache that can be rolled back.

`Runner` is the protocol that the verify loop knows. `EagerRunner` is the reference: any
transformers causal LM with ordinary attention, any device, any dtype.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch

from engine.kv_cache import KVCache


class Runner(Protocol):
    """One model on one device.

    Attributes:
        name: what the statistics call it.
        max_context: most tokens that a sequence can hold.
        prefill_chunk: tokens a prefill chunk; chunks lie on a fixed grid of absolute
            positions, so that a reused prefix holds the values that a fresh one would.
        max_draft: longest draft worth a try on this device.
    """

    name: str
    device: str
    dtype: str
    max_context: int
    prefill_chunk: int
    max_draft: int

    def new_cache(self, capacity: int) -> KVCache:
        """Return an empty cache with room for `capacity` tokens (it grows when it must)."""
        ...

    def prefill(self, cache: KVCache, tokens: Sequence[int]) -> Iterator[int]:
        """Append `tokens` to the cache; yield how many are done after every chunk."""
        ...

    def verify(self, cache: KVCache, tokens: Sequence[int]) -> torch.Tensor:
        """Append `tokens`; return logits `[len(tokens), vocabulary]`, row i following token i."""
        ...


class EagerRunner:
    """Plain transformers forward passes.

    Args:
        model: a transformers causal LM with ordinary attention.
        max_context: most tokens that a sequence can hold.
        name, dtype: what the statistics call it, where that is not plain eager.
    """

    def __init__(
        self, model: Any, max_context: int, name: str = "eager", dtype: str | None = None
    ) -> None:
        self._model = model.eval()
        self._device = next(model.parameters()).device
        self.name = name
        self.device = str(self._device)
        self.dtype = dtype or str(model.dtype).removeprefix("torch.")
        self.max_context = max_context
        on_cpu = self._device.type == "cpu"
        # On a CPU every row of a pass costs time; a GPU reads the weights once for many.
        self.prefill_chunk = 64 if on_cpu else 512
        self.max_draft = 16 if on_cpu else 64
        # transformers renamed the argument in 5.2x; the old name will go.
        accepted = inspect.signature(model.forward).parameters
        self._cache_argument = "cache" if "cache" in accepted else "past_key_values"
        self._layers = model.config.get_text_config().num_hidden_layers

    def new_cache(self, capacity: int) -> KVCache:
        """Return an empty cache with room for `capacity` tokens."""
        return KVCache(self._layers, capacity)

    def prefill(self, cache: KVCache, tokens: Sequence[int]) -> Iterator[int]:
        """Append `tokens` in chunks that end on multiples of `prefill_chunk`."""
        done = 0
        while done < len(tokens):
            room = self.prefill_chunk - cache.length % self.prefill_chunk
            chunk = tokens[done : done + room]
            self._forward(cache, chunk, logits_to_keep=1)
            done += len(chunk)
            yield done

    def verify(self, cache: KVCache, tokens: Sequence[int]) -> torch.Tensor:
        """Append `tokens`; return one row of logits for each."""
        return self._forward(cache, tokens, logits_to_keep=0)[0]

    @torch.inference_mode()
    def _forward(self, cache: KVCache, tokens: Sequence[int], logits_to_keep: int) -> torch.Tensor:
        ids = torch.tensor([list(tokens)], device=self._device)
        positions = torch.arange(cache.length, cache.length + len(tokens), device=ids.device)
        output = self._model(
            input_ids=ids,
            position_ids=positions[None],
            use_cache=True,
            logits_to_keep=logits_to_keep,
            **{self._cache_argument: cache},
        )
        cache.tokens.extend(tokens)
        return output.logits
