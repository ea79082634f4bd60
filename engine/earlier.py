"""What was rewritten last in each editor window, so that the next similar edit is drafted.

Somebody who renames something in one function does so in the next one. Kept are token ids
only, in memory only; a window that names no id leaves nothing and is told nothing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

MAX_WINDOWS = 8
"""Windows remembered; the least recently used is forgotten first."""

MAX_REWRITES = 4
"""Rewrites remembered of one window."""

MAX_TOKENS = 4096
"""Tokens remembered of one window: a drafter indexes all of them before each answer."""


class EarlierRewrites:
    """The token ids of the last rewrites of each window, within the bounds above."""

    def __init__(self) -> None:
        self._windows: OrderedDict[str, deque[tuple[int, ...]]] = OrderedDict()

    def of(self, window: str | None) -> tuple[tuple[int, ...], ...]:
        """Return the token ids of a window's last rewrites, newest first."""
        if window is None or window not in self._windows:
            return ()
        self._windows.move_to_end(window)
        return tuple(self._windows[window])

    def add(self, window: str | None, tokens: Sequence[int]) -> None:
        """Remember a rewrite as its window's newest.

        One that alone exceeds `MAX_TOKENS` is remembered by its end, where the answer is.
        """
        if window is None or not tokens:
            return
        kept = self._windows.setdefault(window, deque())
        self._windows.move_to_end(window)
        added = tuple(tokens[-MAX_TOKENS:])
        # Written again, as after another wording, it would only be indexed twice.
        if added in kept:
            kept.remove(added)
        kept.appendleft(added)
        while len(kept) > MAX_REWRITES or sum(map(len, kept)) > MAX_TOKENS:
            kept.pop()
        while len(self._windows) > MAX_WINDOWS:
            self._windows.popitem(last=False)
