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

FOLLOWERS = 24
"""Occurrences of a token or pair that are counted, latest first."""

Shares = list[tuple[int, int]]
"""Tokens, each with the bucket of its share."""


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
        self._after_shape: dict[tuple[int, object], list[int]] = {}
        self._after_kind: dict[object, dict[int, int]] = {}
        self._kind_counts: dict[object, int] = {}
        self._commonest: dict[object, tuple[int, Shares]] = {}
        self._known_shares: dict[object, tuple[int, Shares]] = {}

    def append(self, token: int) -> None:
        """Append one token."""
        self.extend((token,))

    def extend(self, more: Sequence[int]) -> None:
        """Append tokens."""
        tokens, after, after_pair = self.tokens, self._after, self._after_pair
        kind_of, after_kind, kind_counts = self._kind_of, self._after_kind, self._kind_counts
        after_shape = self._after_shape
        last = tokens[-1] if tokens else None
        size = len(tokens)
        for token in more:
            size += 1
            if last is not None:
                key = last << SHIFT | token
                places = after_pair.get(key)
                if places is None:
                    after_pair[key] = [size]
                else:
                    places.append(size)
                if kind_of is not None:
                    kind = kind_of(last)
                    counts = after_kind.get(kind)
                    if counts is None:
                        counts = after_kind[kind] = {}
                        kind_counts[kind] = 0
                    counts[token] = counts.get(token, 0) + 1
                    kind_counts[kind] += 1
                    if size > 2:
                        shape = (tokens[-2], kind)
                        places = after_shape.get(shape)
                        if places is None:
                            after_shape[shape] = [size - 1]
                        else:
                            places.append(size - 1)
            tokens.append(token)
            places = after.get(token)
            if places is None:
                after[token] = [size]
            else:
                places.append(size)
            last = token

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

    def shares_after(self, token: int) -> Shares:
        """Return how often what followed a token lately, the commonest first."""
        return self._shares(token, self._after.get(token))

    def shares_after_pair(self, first: int, second: int) -> Shares:
        """Return how often what followed a pair lately, the commonest first."""
        key = first << SHIFT | second
        return self._shares(~key, self._after_pair.get(key))

    def shares_after_shape(self, first: int, second: int) -> Shares:
        """Return what followed `first` and any token of the kind of `second`."""
        if self._kind_of is None:
            return []
        shape = (first, self._kind_of(second))
        return self._shares(shape, self._after_shape.get(shape))

    def commonest_after_kind(self, token: int) -> Shares:
        """Return the commonest followers of tokens of this token's kind.

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
            shares = [(token, small_share_step(times / (count + 8))) for token, times in most]
            known = self._commonest[kind] = (count, shares)
        return known[1]

    def _shares(self, key: object, places: list[int] | None) -> Shares:
        if places is None:
            return []
        tokens, end = self.tokens, len(self.tokens)
        # The last place may be the end, where nothing stands yet.
        size = len(places) - (places[-1] == end)
        known = self._known_shares.get(key)
        if known is None or known[0] != size:
            counts: dict[int, int] = {}
            for place in places[max(size - FOLLOWERS, 0) : size]:
                token = tokens[place]
                counts[token] = counts.get(token, 0) + 1
            total = 1 + min(size, FOLLOWERS)
            most = sorted(counts.items(), key=lambda item: -item[1])
            shares = [(token, share_step(count / total)) for token, count in most]
            known = self._known_shares[key] = (size, shares)
        return known[1]


def share_step(share: float) -> int:
    """Return the bucket of a share from 0 to 1, of eight."""
    if share < 0.2:
        return 0 if share < 0.05 else 1 if share < 0.1 else 2
    if share < 0.55:
        return 3 if share < 0.35 else 4
    return 5 if share < 0.75 else 6 if share < 0.9 else 7


def small_share_step(share: float) -> int:
    """Return the bucket of a share that is mostly small, of nine, in doublings."""
    step, bound = 0, 0.004
    while step < 8 and share >= bound:
        step += 1
        bound *= 2
    return step
