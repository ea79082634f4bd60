"""Keeps the KV cache of the last prompt, so that asking again prefills only what changed."""

from __future__ import annotations

from engine.kv_cache import KVCache, common_prefix
from engine.runner import Runner


class PrefixCache:
    """Holds one sequence.

    Only whole prefill chunks are reused: chunks lie on a fixed grid of absolute
    positions, so what is reused holds the very values that a fresh prefill would make.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._kept: KVCache | None = None
        self._prefilled: list[int] = []

    def take(self, prompt: list[int], room: int) -> KVCache:
        """Return a cache that holds the longest reusable prefix of `prompt`.

        Args:
            prompt: token ids about to be prefilled.
            room: capacity in tokens that the sequence will need.
        """
        cache, self._kept = self._kept, None
        same = 0
        if cache is not None:
            same = min(common_prefix(prompt, self._prefilled), cache.length)
            same -= same % self._runner.prefill_chunk
        if cache is None or not same:
            # Also where there is one: it may have grown for a prompt many times as long.
            del cache
            return self._runner.new_cache(room)
        cache.rollback(cache.length - same)
        cache.reserve(room)
        return cache

    def give_back(self, cache: KVCache, prompt: list[int]) -> None:
        """Keep `cache` for the next request.

        Args:
            cache: as it was taken, more tokens appended.
            prompt: what was prefilled; tokens behind it came from passes and are not reused.
        """
        self._kept = cache
        self._prefilled = prompt[: cache.length]
