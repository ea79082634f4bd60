"""What the open workspace's own files say about the next token.

An index is the tokens of some files and the order of their places by the three tokens before
each, the nearest first (a suffix array cut off at three tokens, of the reversed text; Manber
and Myers 1990). The places behind one, two or three given tokens are neighbours in it, so a
look-up is two binary searches. It takes 16 bytes a token, whatever the files hold.

An index never changes once it is built, so any thread may read it while another is built.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

BITS = 21
"""Of a token id in a key; three make up a key of 63 bits."""

BREAK = (1 << BITS) - 1
"""Stands between two files and is never looked up; ids from here on are not indexed."""

MOST_TOKENS = 1 << 21
"""Tokens of an index where nothing else is said."""

BYTES_A_TOKEN = 16
"""Of an index: the token, its place, its key."""

FOLLOWERS = 16
"""Places behind a context that are counted."""

CANDIDATES = 12
"""Places behind three tokens whose whole matches are compared."""

MAX_MATCH = 32
"""Longest match told apart from longer ones."""

KEPT = 4096
"""Contexts whose followers one answer remembers."""


class Follower(NamedTuple):
    """A token that follows a context.

    Attributes:
        token: its id.
        share: how often it does, of the places looked at and one more.
        places: how many places were looked at.
    """

    token: int
    share: float
    places: int


def build_index(files: Iterable[Sequence[int]], most_tokens: int = MOST_TOKENS) -> WorkspaceIndex:
    """Return the index of some files.

    Args:
        files: token ids of each file, the nearest (or newest) file first.
        most_tokens: where to stop; what comes after is left out.
    """
    parts: list[np.ndarray] = []
    room = most_tokens
    for file in files:
        if room <= 1:
            break
        part = np.asarray(file[: room - 1], dtype=np.int64)
        part = np.where((part < 0) | (part >= BREAK), BREAK, part)
        parts += [part, np.array([BREAK])]
        room -= len(part) + 1
    joined = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    keys = np.zeros(len(joined), dtype=np.uint64)
    for back in (1, 2, 3):
        before = np.full(len(joined), BREAK, dtype=np.uint64)
        before[back:] = joined[:-back]
        keys |= before << np.uint64(BITS * (3 - back))
    # A place behind a break, or with one on it, follows nothing.
    told = np.flatnonzero((joined != BREAK) & (keys >> np.uint64(2 * BITS) != BREAK))
    order = told[np.argsort(keys[told], kind="stable")]
    return WorkspaceIndex(joined, keys[order], order)


class WorkspaceIndex:
    """Places of tokens, by the three tokens before them.

    Args:
        tokens: of all files, `BREAK` behind each.
        keys: the three tokens before each place that follows something, the last one in the
            highest bits, in rising order.
        order: those places in the same order.

    Raises:
        ValueError: the arrays do not belong together.
    """

    def __init__(self, tokens: np.ndarray, keys: np.ndarray, order: np.ndarray) -> None:
        fits = len(order) == 0 or (order.min() >= 1 and order.max() < len(tokens))
        if len(keys) != len(order) or not fits:
            raise ValueError("these arrays are no index")
        # Views give plain ints, several times faster than numpy's own items.
        self._tokens = np.ascontiguousarray(tokens, dtype=np.int32).data
        self.tokens: Sequence[int] = self._tokens
        self._keys = np.ascontiguousarray(keys, dtype=np.uint64).data
        self._order = np.ascontiguousarray(order, dtype=np.int32).data

    @property
    def bytes(self) -> int:
        """Memory that it takes, about."""
        return BYTES_A_TOKEN * len(self.tokens)

    def written(self) -> bytes:
        """Return the index as bytes, for `read_index`, in this machine's order of bytes."""
        head = np.array([len(self.tokens), len(self._order)], dtype=np.int64)
        return b"".join((head.tobytes(), self._keys, self._tokens, self._order))

    def places(self, context: Sequence[int], most: int) -> Sequence[int]:
        """Return at most `most` places behind the last one to three tokens of `context`.

        Behind three tokens the nearest ones; behind fewer, where places stand in the order of
        the tokens before, as many from all over them.
        """
        low, width = 0, len(context[-3:])
        for token in reversed(context[-3:]):
            if not 0 <= token < BREAK:
                return ()
            low = low << BITS | token
        shift = BITS * (3 - width)
        first = bisect_left(self._keys, low << shift)
        end = bisect_left(self._keys, (low + 1) << shift, first)
        step = 1 if width == 3 else max(-(-(end - first) // most), 1)
        return self._order[first : min(end, first + most * step) : step]

    def match_length(self, place: int, context: Sequence[int]) -> int:
        """Return how many of the last tokens of `context` stand before `place`."""
        tokens, end = self.tokens, len(context)
        most = min(MAX_MATCH, place, end)
        length = 0
        while length < most and tokens[place - 1 - length] == context[end - 1 - length]:
            length += 1
        return length


def read_index(data: bytes) -> WorkspaceIndex:
    """Return an index that was `written`; it looks into `data` and copies nothing.

    Raises:
        ValueError: these bytes are none.
    """
    tokens, places = map(int, np.frombuffer(data, np.int64, 2))
    if min(tokens, places) < 0 or len(data) != 16 + 12 * places + 4 * tokens:
        raise ValueError("these bytes are no index")
    keys = np.frombuffer(data, np.uint64, places, 16)
    after = 16 + 8 * places
    joined = np.frombuffer(data, np.int32, tokens, after)
    return WorkspaceIndex(joined, keys, np.frombuffer(data, np.int32, places, after + 4 * tokens))


class WorkspaceLookup:
    """Asks an index for one answer, and remembers what it said.

    Args:
        index: of the workspace.
    """

    def __init__(self, index: WorkspaceIndex) -> None:
        self.index = index
        self._known: dict[tuple[int, ...], list[Follower]] = {}

    def followers(self, *context: int) -> list[Follower]:
        """Return what follows one to three tokens, the commonest first."""
        known = self._known.get(context)
        if known is None:
            if len(self._known) >= KEPT:
                self._known.clear()
            known = self._known[context] = self._count(context)
        return known

    def _count(self, context: Sequence[int]) -> list[Follower]:
        tokens = self.index.tokens
        places = self.index.places(context, FOLLOWERS)
        counts: dict[int, int] = {}
        for place in places:
            token = tokens[place]
            counts[token] = counts.get(token, 0) + 1
        seen = len(places)
        most = sorted(counts.items(), key=lambda item: -item[1])
        return [Follower(token, count / (seen + 1), seen) for token, count in most]

    def matches(self, context: Sequence[int]) -> list[tuple[int, int]]:
        """Return (place, length) of the longest match for each token that may follow.

        Args:
            context: all tokens so far; the last three must match.
        """
        if len(context) < 3:
            return []
        index = self.index
        best: dict[int, tuple[int, int]] = {}
        for place in index.places(context[-3:], CANDIDATES):
            length = index.match_length(place, context)
            token = index.tokens[place]
            if token not in best or length > best[token][1]:
                best[token] = (place, length)
        return sorted(best.values(), key=lambda match: -match[1])
