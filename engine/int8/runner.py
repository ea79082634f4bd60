"""The CPU int8 runner: every row is computed the same way whatever stands beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from engine import layers
from engine.int8.decoder import run_layer
from engine.int8.modules import Int8Model
from engine.kv_cache import KVCache
from engine.probe import LayerProbe


class Int8Runner:
    """Runs a model of `load_int8_model`; always exact, at any number of rows.

    Args:
        model: as loaded.
        max_context: most tokens that a sequence can hold.
    """

    name = "cpu-int8"
    device = "cpu"
    dtype = "int8"
    exact = True
    notice = ""
    prefill_chunk = 64
    max_draft = 31

    def __init__(self, model: Int8Model, max_context: int) -> None:
        self._model = model
        self._layers = len(model.model.layers)
        self.max_context = max_context
        self.weight_bytes = model.weight_bytes
        self.vocabulary = model.vocabulary

    def new_cache(self, capacity: int, exact: bool = True) -> KVCache:
        """Return an empty cache; there are no faster passes than the exact ones."""
        return KVCache(self._layers, capacity)

    def prefill(self, cache: KVCache, tokens: Sequence[int]) -> Iterator[float]:
        """Append `tokens`; yield after every layer."""
        return layers.prefill(self._model, cache, tokens, self.prefill_chunk, run_layer)

    @torch.inference_mode()
    def verify(self, cache: KVCache, tokens: Sequence[int]) -> torch.Tensor:
        """Append `tokens`; return one row of logits for each."""
        return self._head(layers.last_hidden_states(self._model, cache, tokens, run_layer))

    def probe(self) -> Callable[[int, int], float]:
        """Return what times a pass."""
        return LayerProbe(self._model, run_layer, self._head, self.new_cache)

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.lm_head(self._model.model.norm(hidden))[0]
