"""Keeps the KV caches of earlier prompts, so that asking again prefills only what changed.

A kept sequence may be cut at multiples of its cache's `grid` (engine/kv_cache.py): what is
reused holds the very values that a fresh prefill would make. With a grid of 1 that is
true of every row, the answer's own included.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.kv_cache import KVCache, common_prefix
from engine.memory import is_out_of_memory
from engine.runner import Runner

WORTH_A_COPY = 64
"""A kept sequence that would lose more tokens than this is left alone, and copied from."""

WORTH_A_WAIT = 64
"""For more tokens than this it is better to wait until another answer has read them."""

CPU_BUDGET = 256 << 20
DEVICE_BUDGET = 2 << 30


def default_budget(device: str) -> int:
    """Return how many bytes are kept on a device where nobody says how many."""
    return CPU_BUDGET if device == "cpu" else DEVICE_BUDGET


class _InUse(NamedTuple):
    """A sequence that is being answered, with what `take` was asked for."""

    cache: KVCache
    prompt: list[int]
    exact: bool

    @property
    def usable(self) -> list[int]:
        """The tokens that may be copied: with a grid of 1 the answer's own too."""
        return self.cache.tokens if self.cache.grid == 1 else self.cache.tokens[: len(self.prompt)]


class PrefixCache:
    """Holds sequences under a byte budget; the least recently used goes first.

    A sequence that is being answered is not among them: it is taken out, or a copy is. But
    while it is, others may copy from it what it has read.

    Args:
        runner: makes the caches.
        budget: bytes that may be kept; None for `default_budget`, 0 keeps nothing.
    """

    def __init__(self, runner: Runner, budget: int | None = None) -> None:
        self._runner = runner
        self._budget = default_budget(runner.device) if budget is None else budget
        self._kept: list[KVCache] = []  # the least recently used first
        self._in_use: list[_InUse] = []

    @property
    def sequences(self) -> int:
        """How many are kept."""
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """Bytes allocated for those that are kept."""
        return sum(cache.bytes for cache in list(self._kept))

    def take(self, prompt: list[int], room: int, exact: bool = True) -> KVCache:
        """Return a cache that holds the longest reusable prefix of `prompt`.

        Args:
            prompt: token ids about to be prefilled.
            room: tokens to have room for; the cache grows when it must.
            exact: as in `Runner.new_cache`.
        """
        fresh = self._runner.new_cache(room, exact)
        reused = self._reused(prompt, room, fresh)
        cache = fresh if reused is None else reused
        self._in_use.append(_InUse(cache, prompt, exact))
        return cache

    def is_being_read(self, prompt: list[int], exact: bool = True) -> bool:
        """Return whether an answer in progress will soon hold much more of `prompt`.

        Then its steps bring more than a prefill of one's own, which would do the same
        work again. False once it has read that, or has ended.
        """
        coming = 0
        for used in self._in_use:
            if used.exact == exact and used.cache.length < len(used.prompt):
                coming = max(coming, _cut(common_prefix(prompt, used.prompt), used.cache))
        if coming <= WORTH_A_WAIT:
            return False
        like = self._runner.new_cache(1, exact)
        found = (self._longest(prompt, like), self._longest_in_use(prompt, like))
        return coming - max(same for same, _ in found) > WORTH_A_WAIT

    def give_back(self, cache: KVCache, prompt: list[int]) -> None:
        """Keep `cache` for later requests, as far as it can be reused.

        Args:
            cache: as it was taken, more tokens appended; also after a failed pass.
            prompt: what was to be prefilled; tokens behind it came from passes.
        """
        self._in_use = [used for used in self._in_use if used.cache is not cache]
        usable = cache.length
        if cache.grid > 1:
            usable = _cut(min(usable, len(prompt)), cache)
        # Also where nothing is dropped: a pass that failed may have left layers out of step.
        cache.rollback(cache.length - usable)
        if not usable or not self._budget:
            return
        for kept in self._kept:
            if _same_kind(kept, cache) and _begins_with(kept.tokens, cache.tokens):
                self._remove(kept)
                self._kept.append(kept)
                return
        if cache.bytes > self._budget and not (_trim(cache) and cache.bytes <= self._budget):
            return
        self._kept = [
            kept
            for kept in self._kept
            if not (_same_kind(kept, cache) and _begins_with(cache.tokens, kept.tokens))
        ]
        self._kept.append(cache)
        self._fit()

    def clear(self) -> None:
        """Keep nothing of what was kept so far."""
        self._kept.clear()

    def _reused(self, prompt: list[int], room: int, like: KVCache) -> KVCache | None:
        same, kept = self._longest(prompt, like)
        copied, used = self._longest_in_use(prompt, like)
        if used is not None and copied > same:
            copy = _copy(used, copied, room)
            if copy is not None:
                return copy
        if kept is None:
            return None
        self._remove(kept)
        if kept.length - same > WORTH_A_COPY:
            self._kept.append(kept)
            copy = _copy(kept, same, room)
            if copy is not None:
                return copy
            # No memory for two of them: go on with the one there is.
            self._remove(kept)
        kept.rollback(kept.length - same)
        self._reserve(kept, room)
        return kept

    def _longest(self, prompt: list[int], like: KVCache) -> tuple[int, KVCache | None]:
        """Return the most tokens that can be reused and the kept sequence that holds them."""
        best: tuple[int, KVCache | None] = (0, None)
        for kept in reversed(self._kept):
            if not _same_kind(kept, like):
                continue
            same = _cut(common_prefix(prompt, kept.tokens), kept)
            # Of equals the shorter, which has less to lose and may be moved.
            shorter = same == best[0] and best[1] is not None and kept.length < best[1].length
            if same > best[0] or shorter:
                best = same, kept
        return best

    def _longest_in_use(self, prompt: list[int], like: KVCache) -> tuple[int, KVCache | None]:
        """Return the same of the sequences that are being answered."""
        best: tuple[int, KVCache | None] = (0, None)
        for used in self._in_use:
            if _same_kind(used.cache, like):
                same = _cut(common_prefix(prompt, used.usable), used.cache)
                if same > best[0]:
                    best = same, used.cache
        return best

    def _reserve(self, cache: KVCache, room: int) -> None:
        try:
            try:
                cache.reserve(room)
            except Exception as error:
                if not is_out_of_memory(error) or not self._kept:
                    raise
                self.clear()
                cache.reserve(room)
        except Exception:
            self._kept.append(cache)
            self._fit()
            raise

    def _fit(self) -> None:
        """Bring what is kept under the budget: unused room first, then whole sequences."""
        for kept in list(self._kept):
            if self.bytes <= self._budget:
                return
            if not _trim(kept):
                self._remove(kept)
        while self.bytes > self._budget:
            del self._kept[0]

    def _remove(self, cache: KVCache) -> None:
        self._kept = [kept for kept in self._kept if kept is not cache]


def _copy(cache: KVCache, length: int, room: int) -> KVCache | None:
    """Copy the first `length` tokens; return None where there is no memory for it."""
    try:
        return cache.copy_prefix(length, room)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None


def _trim(cache: KVCache) -> bool:
    """Let go of unused room; return False where even that takes more memory than there is."""
    try:
        cache.trim()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


def _cut(tokens: int, cache: KVCache) -> int:
    return tokens // cache.grid * cache.grid


def _same_kind(a: KVCache, b: KVCache) -> bool:
    return (a.exact, a.grid) == (b.exact, b.grid)


def _begins_with(tokens: list[int], beginning: list[int]) -> bool:
    return len(beginning) <= len(tokens) and common_prefix(tokens, beginning) == len(beginning)
