"""Which lines of two texts are the same line: a longest common subsequence, built line by line.

The algorithm is Hunt and Szymanski's ("A Fast Algorithm for Computing Longest Common
Subsequences", CACM 1977). It takes the new lines one at a time, so that the same code serves the
finished text and one that is still being written, and its cost follows the number of equal pairs
of lines, not the number of changes: a text in which every line is new costs next to nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

# Pairs of equal lines looked at for one diff, about 0.3 s of work.
MAX_PAIRS = 200_000


class Chain(NamedTuple):
    """A common subsequence by its last pair: line `old` and line `new` are equal."""

    old: int
    new: int
    before: Chain | None


class Region(NamedTuple):
    """Lines `[old_start, old_end)` become lines `[new_start, new_end)`; one may be empty."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


class Subsequences:
    """The best common subsequences of the old lines and the new lines added so far.

    `chains[n]` is, of all with n + 1 pairs, the one whose last old line comes first; those last
    old lines ascend with n.
    """

    __slots__ = ("_ends", "chains")

    def __init__(self) -> None:
        self._ends: list[int] = []
        self.chains: list[Chain] = []

    def add(self, new: int, equal_old: Sequence[int]) -> Chain | None:
        """Add line `new`, equal to the old lines `equal_old` (ascending).

        Returns:
            Of the chains that end with this line now, the one that leaves the fewest old lines
            out for each pair; None when no chain became better by it.
        """
        best: tuple[int, Chain] | None = None
        # From the last to the first, so that one new line is not paired twice in a chain.
        for old in reversed(equal_old):
            length = bisect_left(self._ends, old)
            before = self.chains[length - 1] if length else None
            if length == len(self._ends):
                self._ends.append(old)
                self.chains.append(Chain(old, new, before))
            elif old < self._ends[length] or _follows(before, old, new):
                self._ends[length] = old
                self.chains[length] = Chain(old, new, before)
            else:
                continue
            left_out = old - 2 * length
            if best is None or left_out <= best[0]:
                best = (left_out, self.chains[length])
        return best[1] if best else None


def _follows(before: Chain | None, old: int, new: int) -> bool:
    """Whether the pair goes on an unbroken run; of equally long chains that one reads best."""
    return before is not None and before.old == old - 1 and before.new == new - 1


def pairs_of(chain: Chain | None) -> list[tuple[int, int]]:
    """Return the chain's pairs (old, new), first to last."""
    pairs = []
    while chain is not None:
        pairs.append((chain.old, chain.new))
        chain = chain.before
    return pairs[::-1]


def regions(
    pairs: Sequence[tuple[int, int]], old: tuple[int, int], new: tuple[int, int]
) -> Iterator[Region]:
    """Yield what lies between the pairs, within the bounds `[start, end)` of either side."""
    old_at, new_at = old[0], new[0]
    for old_line, new_line in (*pairs, (old[1], new[1])):
        if old_at < old_line or new_at < new_line:
            yield Region(old_at, old_line, new_at, new_line)
        old_at, new_at = old_line + 1, new_line + 1


def changed_regions(
    old: Sequence[str], new: Sequence[str], max_pairs: int = MAX_PAIRS
) -> list[Region]:
    """Return a minimal line diff: the fewest lines taken out and put in, in order.

    Where the lines repeat so much that there are more than `max_pairs` pairs of equal lines, the
    most repeated lines are used only beside lines that were paired without them; the result is
    then right, but not always minimal.
    """
    shortest = min(len(old), len(new))
    head = _count(lambda n: n < shortest and old[n] == new[n])
    tail = _count(lambda n: n < shortest - head and old[-1 - n] == new[-1 - n])
    old_end, new_end = len(old) - tail, len(new) - tail
    if head in (old_end, new_end):
        whole = Region(head, old_end, head, new_end)
        return [whole] if old_end > head or new_end > head else []
    old_counts, new_counts = Counter(old[head:old_end]), Counter(new[head:new_end])
    usable, budget = set(), max_pairs
    for line in sorted(old_counts, key=lambda line: old_counts[line] * new_counts[line]):
        budget -= old_counts[line] * new_counts[line]
        if budget < 0:
            break
        usable.add(line)
    places = places_of(old, head, old_end)
    subsequences = Subsequences()
    for at in range(head, new_end):
        if new[at] in usable:
            subsequences.add(at, places[new[at]])
    pairs = pairs_of(subsequences.chains[-1] if subsequences.chains else None)
    found = list(regions(pairs, (head, old_end), (head, new_end)))
    if budget >= 0:
        return found
    return [part for region in found if (part := _trimmed(region, old, new)) is not None]


def places_of(lines: Sequence[str], start: int, end: int) -> dict[str, list[int]]:
    """Return for every line of `[start, end)` where it stands, ascending."""
    places: dict[str, list[int]] = {}
    for at in range(start, end):
        places.setdefault(lines[at], []).append(at)
    return places


def _trimmed(region: Region, old: Sequence[str], new: Sequence[str]) -> Region | None:
    old_start, old_end, new_start, new_end = region
    shortest = min(old_end - old_start, new_end - new_start)
    head = _count(lambda n: n < shortest and old[old_start + n] == new[new_start + n])
    tail = _count(lambda n: n < shortest - head and old[old_end - 1 - n] == new[new_end - 1 - n])
    trimmed = Region(old_start + head, old_end - tail, new_start + head, new_end - tail)
    return trimmed if trimmed[0] < trimmed[1] or trimmed[2] < trimmed[3] else None


def _count(holds: Callable[[int], bool]) -> int:
    """Return the first number from 0 on for which `holds` does not."""
    number = 0
    while holds(number):
        number += 1
    return number
