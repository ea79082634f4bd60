"""Drafts by longest-suffix look-up over the prompt and the answer so far.

Prompt look-up (Saxena 2023) with three changes: the longest match wins instead of the
first, ties go to the latest place, and the index is kept up to date token by token, so
that a look-up costs the same at any length of context.
"""

from __future__ import annotations

from collections.abc import Sequence

from drafters.core import NO_DRAFT, Draft, DraftContext

MIN_MATCH = 2
"""Shortest suffix looked up: a single token says too little."""

MAX_MATCH = 32
"""Longest match told apart from longer ones."""

CANDIDATES = 24
"""Places compared for one look-up, latest first."""


class NgramDrafter:
    """Copies what followed the last occurrence of the longest matching suffix."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._followers: dict[tuple[int, int], list[int]] = {}

    def begin(self, context: DraftContext) -> None:
        """Index the prompt."""
        self._tokens = []
        self._followers = {}
        for token in context.prompt:
            self._append(token)

    def propose(self, limit: int) -> Draft:
        """Return what followed the longest earlier match of the last tokens."""
        tokens = self._tokens
        if len(tokens) < MIN_MATCH:
            return NO_DRAFT
        places = self._followers.get((tokens[-2], tokens[-1]), ())
        longest, place = 0, -1
        for candidate in reversed(places[-CANDIDATES - 1 :]):
            if candidate >= len(tokens):
                continue
            length = self._match_length(candidate)
            if length > longest:
                longest, place = length, candidate
        if place < 0:
            return NO_DRAFT
        confidence = 1.0 - 0.5 ** (longest - MIN_MATCH + 1)
        return Draft(tokens[place : place + limit], "ngram", confidence)

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Index the tokens that the target emitted."""
        for token in accepted:
            self._append(token)
        self._append(next_token)

    def _append(self, token: int) -> None:
        self._tokens.append(token)
        size = len(self._tokens)
        if size >= MIN_MATCH:
            self._followers.setdefault((self._tokens[-2], token), []).append(size)

    def _match_length(self, place: int) -> int:
        """Return how many tokens before `place` equal the last tokens."""
        tokens, end = self._tokens, len(self._tokens)
        length = MIN_MATCH
        while (
            length < MAX_MATCH
            and length < place
            and tokens[place - 1 - length] == (tokens[end - 1 - length])
        ):
            length += 1
        return length
