"""Times passes and plain decoding of the engine's runner."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from engine import layers
from engine.int8.decoder import run_layer
from engine.int8.runner import Int8Runner
from engine.kv_cache import KVCache
from engine.runner import Runner

WINDOWS = (1, 2, 4, 8, 12, 16, 24, 32)
CONTEXTS = (0, 512)
"""Tokens before a pass; llama.cpp is asked for the same."""

PROMPT = 128


PROMPT_ROWS = 32
"""Rows of a prompt that is timed on its own."""


class Staircase:
    """Passes of each window over each context, a round at a time.

    Attributes:
        times: seconds of each pass, by context and window.
        prompts: seconds of reading `PROMPT_ROWS` tokens over each context, with the logits of
            the last alone, as a prompt is read (a pass that verifies wants those of all).
            Empty for a runner other than the int8 one.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._caches: dict[int, KVCache] = {}
        for context in CONTEXTS:
            cache = runner.new_cache(context + max(WINDOWS))
            for _ in runner.prefill(cache, tokens_of(context, 1)):
                pass
            self._caches[context] = cache
            for window in WINDOWS:  # not counted: first of their kind
                self._pass(context, window)
        self.times: dict[tuple[int, int], list[float]] = {
            (context, window): [] for context in CONTEXTS for window in WINDOWS
        }
        self.prompts: dict[int, list[float]] = {}
        if isinstance(runner, Int8Runner):
            self.prompts = {context: [] for context in CONTEXTS}

    def round(self) -> None:
        """Time every pass once."""
        for (context, window), seen in self.times.items():
            seen.append(self._pass(context, window))
        for context, seen in self.prompts.items():
            seen.append(self._prompt(context))

    def _pass(self, context: int, window: int) -> float:
        cache, tokens = self._caches[context], tokens_of(window, 2)
        seconds = timed(lambda: self._runner.verify(cache, tokens))
        cache.rollback(window)
        return seconds

    def _prompt(self, context: int) -> float:
        assert isinstance(self._runner, Int8Runner)
        runner, cache, tokens = self._runner, self._caches[context], tokens_of(PROMPT_ROWS, 4)
        seconds = timed(lambda: _last_logits(runner, cache, tokens))
        cache.rollback(PROMPT_ROWS)
        return seconds


@torch.inference_mode()
def _last_logits(runner: Int8Runner, cache: KVCache, tokens: Sequence[int]) -> torch.Tensor:
    # The engine has no such pass, so this reaches inside.
    hidden = layers.last_hidden_states(runner._model, cache, tokens, run_layer)
    return runner._head(hidden[:, -1:])


def plain(runner: Runner, prompt: Sequence[int], tokens: int) -> float:
    """Return the seconds of `tokens` greedy passes of one row; the prefill is not counted."""
    cache = runner.new_cache(len(prompt) + tokens)
    for _ in runner.prefill(cache, prompt[:-1]):
        pass

    def decode() -> None:
        last = prompt[-1]
        for _ in range(tokens):
            last = int(runner.verify(cache, [last])[0].argmax())

    return timed(decode)


def tokens_of(count: int, seed: int) -> list[int]:
    """Return `count` ids that every vocabulary has."""
    return [(seed * 7919 + i * 104729) % 250 + 3 for i in range(count)]


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
