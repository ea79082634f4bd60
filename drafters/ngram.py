"""Drafts by longest-suffix look-up over the prompt and the answer so far.

Prompt look-up (Saxena 2023) with three changes: the longest match wins instead of the
first, ties go to the latest place, and the index is kept up to date token by token
(drafters/history.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from drafters.core import NO_DRAFT, Draft, DraftContext
from drafters.history import History

MIN_MATCH = 2
"""Shortest suffix looked up: a single token says too little."""

CANDIDATES = 24
"""Places compared for one look-up, latest first."""


class NgramDrafter:
    """Copies what followed the last occurrence of the longest matching suffix."""

    def __init__(self) -> None:
        self._history = History()

    def begin(self, context: DraftContext) -> None:
        """Index earlier rewrites, the newest last, and the prompt."""
        self._history = History()
        for tokens in (*reversed(context.earlier), context.prompt):
            self._history.extend(tokens)

    def propose(self, limit: int) -> Draft:
        """Return what followed the longest earlier match of the last tokens."""
        tokens = self._history.tokens
        if len(tokens) < MIN_MATCH or limit < 1:
            return NO_DRAFT
        longest, place = 0, -1
        for candidate, length in matches(self._history, CANDIDATES):
            if length > longest:
                longest, place = length, candidate
        if place < 0:
            return NO_DRAFT
        confidence = 1.0 - 0.5 ** (longest - MIN_MATCH + 1)
        return Draft(tokens[place : place + limit], "ngram", confidence)

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Index the tokens that the target emitted."""
        for token in accepted:
            self._history.append(token)
        self._history.append(next_token)


def matches(history: History, most: int) -> list[tuple[int, int]]:
    """Return (place, length) of at most `most` earlier matches of the end, latest first."""
    tokens = history.tokens
    if len(tokens) < MIN_MATCH:
        return []
    places = history.after_pair(tokens[-2], tokens[-1])[-most - 1 :]
    end = len(tokens)
    return [(place, history.match_length(place)) for place in reversed(places) if place < end]
