"""The CPU int8 runner: every row is computed the same way whatever stands beside it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from engine import layers
from engine.int8.decoder import run_layer
from engine.int8.modules import Int8Model
from engine.int8.packing import Packing
from engine.kv_cache import KVCache
from engine.probe import LayerProbe
from engine.tree import tree_of

PATIENCE_ROWS = 64
"""A prefill of more rows than this is done sooner when packing is finished first."""

LOOK_SECONDS = 0.1
"""While it waits, a prefill lets its caller look for a cancel this often."""


class Int8Runner:
    """Runs a model of `load_int8_model`; always exact, at any number of rows.

    The first short prefill and the first pass do not wait until all weights are packed, so
    that text comes at once; what follows does, because packed passes are so much faster.

    Args:
        model: as loaded.
        max_context: most tokens that a sequence can hold.
        packing: of its weights.
    """

    name = "cpu-int8"
    device = "cpu"
    dtype = "int8"
    exact = True
    trees = True
    notice = ""
    prefill_chunk = 64
    max_draft = 31

    def __init__(self, model: Int8Model, max_context: int, packing: Packing) -> None:
        self._model = model
        self._packing = packing
        self._has_run = False
        weakref.finalize(self, packing.close)
        self._layers = len(model.model.layers)
        self.max_context = max_context
        self.weight_bytes = model.weight_bytes
        self.vocabulary = model.vocabulary

    def new_cache(self, capacity: int, exact: bool = True) -> KVCache:
        """Return an empty cache; there are no faster passes than the exact ones."""
        return KVCache(self._layers, capacity)

    def prefill(self, cache: KVCache, tokens: Sequence[int]) -> Iterator[float]:
        """Append `tokens`; yield after every layer."""
        if len(tokens) > PATIENCE_ROWS:
            while not self._packing.is_done(LOOK_SECONDS):
                yield 0.0
        yield from layers.prefill(self._model, cache, tokens, self.prefill_chunk, run_layer)

    @torch.inference_mode()
    def verify(
        self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int] = ()
    ) -> torch.Tensor:
        """Append `tokens`; return one row of logits for each."""
        if self._has_run:
            self._packing.is_done()
        self._has_run = True
        tree = tree_of(parents)
        run = run_layer if tree is None else partial(run_layer, tree=tree)
        return self._head(layers.last_hidden_states(self._model, cache, tokens, run, tree))

    def probe(self) -> Callable[[int, int], float]:
        """Return what times a pass, when all weights are packed."""
        self._packing.is_done()
        return LayerProbe(self._model, run_layer, self._head, self.new_cache)

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        return self._model.lm_head(self._model.model.norm(hidden))[0]
