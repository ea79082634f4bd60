"""An index over all tokens seen: what followed each token, each pair, each kind of token.

Kept up to date token by token, so that a look-up costs the same at any length of context.
Longer matches are found by comparing backwards at the places of the pair.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

MAX_MATCH = 32
"""Longest match told apart from longer ones."""

SHIFT = 32
"""Bits of a token id in the key of a pair."""

COMMONEST = 16
"""Followers of a kind of token that are told."""


class History:
    """All tokens so far, the prompt's included.

    Args:
        kind_of: returns the kind of a token, any hashable; kinds are few.
    """

    def __init__(self, kind_of: Callable[[int], object] | None = None) -> None:
        self.tokens: list[int] = []
        self._kind_of = kind_of
        self._after: dict[int, list[int]] = {}
        self._after_pair: dict[int, list[int]] = {}
        self._after_kind: dict[object, dict[int, int]] = {}
        self._kind_counts: dict[object, int] = {}
        self._commonest: dict[object, tuple[int, list[tuple[int, float]]]] = {}

    def append(self, token: int) -> None:
        """Append one token."""
        tokens = self.tokens
        if tokens:
            last = tokens[-1]
            key = last << SHIFT | token
            size = len(tokens) + 1
            places = self._after_pair.get(key)
            if places is None:
                self._after_pair[key] = [size]
            else:
                places.append(size)
            if self._kind_of is not None:
                kind = self._kind_of(last)
                counts = self._after_kind.get(kind)
                if counts is None:
                    counts = self._after_kind[kind] = {}
                counts[token] = counts.get(token, 0) + 1
                self._kind_counts[kind] = self._kind_counts.get(kind, 0) + 1
        tokens.append(token)
        places = self._after.get(token)
        if places is None:
            self._after[token] = [len(tokens)]
        else:
            places.append(len(tokens))

    def after(self, token: int) -> Sequence[int]:
        """Return the places behind each occurrence of a token, oldest first.

        The last may be the end of the history, where nothing stands yet.
        """
        return self._after.get(token, ())

    def after_pair(self, first: int, second: int) -> Sequence[int]:
        """Return the places behind each occurrence of a pair, oldest first."""
        return self._after_pair.get(first << SHIFT | second, ())

    def match_length(self, place: int) -> int:
        """Return how many tokens before `place` equal the last ones; the last two do."""
        tokens, end = self.tokens, len(self.tokens)
        length = 2
        while (
            length < MAX_MATCH
            and length < place
            and tokens[place - 1 - length] == tokens[end - 1 - length]
        ):
            length += 1
        return length

    def commonest_after_kind(self, token: int) -> list[tuple[int, float]]:
        """Return the commonest followers of tokens of this token's kind, with their shares.

        Renewed when an eighth more was seen, since counting costs more than asking.
        """
        if self._kind_of is None:
            return []
        kind = self._kind_of(token)
        count = self._kind_counts.get(kind, 0)
        known = self._commonest.get(kind)
        if known is None or count - known[0] > 16 + known[0] // 8:
            followers = self._after_kind.get(kind, {})
            most = heapq.nlargest(COMMONEST, followers.items(), key=lambda item: item[1])
            known = (count, [(token, times / (count + 8)) for token, times in most])
            self._commonest[kind] = known
        return known[1]
