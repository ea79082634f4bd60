"""Times passes for the cost model, without running whole passes where that can be saved."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from engine.kv_cache import KVCache
from engine.layers import RunLayer, hidden_states

TIMED_LAYERS = 2
"""All layers are alike, so the time of a few stands for all. (Not one: the second finds the
first one's work in no cache, as in a real pass.)"""

TOKEN = 0
"""What is in a window hardly changes how long it takes."""


class LayerProbe:
    """Times some layers and the output head of a decoder of the common shape.

    Args:
        model, run_layer: as in `engine.layers`.
        head: maps the last hidden states to logits.
        new_cache: returns an empty cache.
        rows: returns how many rows a pass of a window really has.
    """

    def __init__(
        self,
        model: Any,
        run_layer: RunLayer,
        head: Callable[[torch.Tensor], torch.Tensor],
        new_cache: Callable[[int], KVCache],
        rows: Callable[[int], int] = lambda window: window,
    ) -> None:
        self._model = model
        self._run_layer = run_layer
        self._head = head
        self._new_cache = new_cache
        self._rows = rows
        self._timed = min(TIMED_LAYERS, len(model.model.layers))
        self._caches: dict[int, KVCache] = {}
        self._heads: dict[int, tuple[int, float]] = {}

    def __call__(self, window: int, context: int) -> float:
        """Return the seconds that a pass of `window` rows over `context` tokens takes."""
        rows = self._rows(window)
        cache = stand_in(self._caches, self._new_cache, context, rows)
        running = hidden_states(self._model, cache, [TOKEN] * rows, self._run_layer)
        started = time.perf_counter()
        hidden = next(running)
        for _ in range(self._timed - 1):
            hidden = next(running)
        layers = (time.perf_counter() - started) * len(self._model.model.layers) / self._timed
        cache.rollback(0)
        return layers + self._head_seconds(window, context, hidden)

    def _head_seconds(self, window: int, context: int, hidden: torch.Tensor) -> float:
        """The head does not see the context: timed with the first context only."""
        known = self._heads.get(window)
        if known is not None and known[0] != context:
            return known[1]
        started = time.perf_counter()
        with torch.inference_mode():
            self._head(hidden)
        seconds = time.perf_counter() - started
        self._heads[window] = (context, seconds)
        return seconds


class PassProbe:
    """Times whole passes, for models whose inside is not known.

    Args:
        verify, new_cache: the runner's.
    """

    def __init__(
        self,
        verify: Callable[[KVCache, list[int]], torch.Tensor],
        new_cache: Callable[[int], KVCache],
    ) -> None:
        self._verify = verify
        self._new_cache = new_cache
        self._caches: dict[int, KVCache] = {}

    def __call__(self, window: int, context: int) -> float:
        """Return the seconds of a pass of `window` rows over `context` tokens."""
        cache = stand_in(self._caches, self._new_cache, context, window)
        started = time.perf_counter()
        logits = self._verify(cache, [TOKEN] * window)
        logits[-1].argmax().item()  # waits for the device
        seconds = time.perf_counter() - started
        cache.rollback(window)
        return seconds


def stand_in(
    caches: dict[int, KVCache], new_cache: Callable[[int], KVCache], context: int, rows: int
) -> KVCache:
    """Return a cache that claims to hold `context` tokens; its zeros cost what others do."""
    cache = caches.get(context)
    if cache is None:
        cache = caches[context] = new_cache(context + rows)
        cache.tokens = [TOKEN] * context
        cache.rollback(0)  # tells the layers
    return cache
