"""Plain decoding, one token a pass, for models whose state cannot be rolled back.

Recurrent layers fold each token into their state, and a refused draft cannot be taken out
of it again. Such a model runs on transformers' own cache, without drafts; nothing of a
sequence can be kept for another one.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from engine.kv_cache import KVCache
from engine.layers import usable_device

CHUNK = 64
"""Tokens read in one step of a prefill, between two looks for a cancel."""

STATES = ("cache", "past_key_values", "cache_params", "state")
"""What models call the state that they take and give back."""


class PlainCache(KVCache):
    """One sequence, whose state is the model's own.

    Its grid is longer than any sequence, so nothing of it is kept or copied.
    """

    def __init__(self) -> None:
        super().__init__(layers=0, capacity=1, exact=True, grid=sys.maxsize)
        self.state: Any = None

    def rollback(self, count: int) -> None:
        """Drop nothing or everything: there is no way back to a state in between.

        Raises:
            ValueError: only some of the tokens are to go.
        """
        if count not in (0, self.length):
            raise ValueError("this model's state cannot be rolled back")
        if count:
            self.tokens.clear()
            self.state = None

    def copy_prefix(self, length: int, capacity: int) -> KVCache:
        """Return an empty sequence; there is no prefix to copy.

        Raises:
            ValueError: `length` is not 0.
        """
        if length:
            raise ValueError("this model's state cannot be cut")
        return PlainCache()


class PlainRunner:
    """Runs any transformers causal LM one token a pass; exact, since there are no drafts.

    Args:
        model: a transformers causal LM.
        max_context: most tokens that a sequence can hold.
        notice: a sentence for people, or "".
    """

    name = "plain"
    exact = True
    trees = False
    prefill_chunk = CHUNK
    max_draft = 0

    def __init__(self, model: Any, max_context: int, notice: str = "") -> None:
        self._model = model.eval()
        self._device = usable_device(next(model.parameters()))
        self.device = str(self._device)
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.max_context = max_context
        self.vocabulary = model.config.get_text_config().vocab_size
        self.weight_bytes = sum(p.nbytes for p in model.parameters())
        self.notice = notice
        accepted = inspect.signature(model.forward).parameters
        self._state = next(name for name in STATES if name in accepted)

    def new_cache(self, capacity: int, exact: bool = True) -> PlainCache:
        """Return an empty sequence."""
        return PlainCache()

    def prefill(self, cache: KVCache, tokens: Sequence[int]) -> Iterator[float]:
        """Append `tokens` in chunks; yield how many are done."""
        for done in range(0, len(tokens), CHUNK):
            chunk = tokens[done : done + CHUNK]
            self.verify(cache, chunk)
            yield done + len(chunk)

    @torch.inference_mode()
    def verify(
        self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int] = ()
    ) -> torch.Tensor:
        """Append `tokens`, a chain; return one row of logits for each."""
        assert not parents
        assert isinstance(cache, PlainCache)
        ids = torch.tensor([list(tokens)], device=self._device)
        output = self._model(input_ids=ids, use_cache=True, **{self._state: cache.state})
        cache.state = output[self._state]
        cache.tokens.extend(tokens)
        return output.logits[0]

    def probe(self) -> Callable[[int, int], float]:
        """Return what times a pass, over nothing: no draft depends on what the context costs."""

        def seconds(window: int, context: int) -> float:
            started = time.perf_counter()
            self.verify(self.new_cache(window), [0] * window)[-1].argmax().item()
            return time.perf_counter() - started

        return seconds
