"""Where in the source the answer stands: a few hypotheses with weights.

Each hypothesis, a place in the source, is advanced with every emitted token, as an online
edit distance would be (Wagner and Fischer 1974, kept to a beam): the token matches the
source, replaces a token of it, was inserted, or follows a stretch that was left out. After
an edit the place is found again as soon as one or two tokens match, at the place that the
alignment says and not at the first equal n-gram.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

BEAM = 8
"""Hypotheses kept."""

SKIP_REACH = 200
"""How many source tokens a deletion may leave out at once."""

OCCURRENCES = 4
"""Places behind a hypothesis that are tried for a deletion, nearest first."""

MATCH, SUBSTITUTE, INSERT, DELETE = 1.0, -2.0, -2.2, -2.4
DELETE_EACH = -0.02
"""Weight of each left-out token, so that near places win over far ones."""

FIRM = 4
"""Matches in a row after which the other hypotheses have had their chance."""

RUN_CAP = 32
"""Longest run of matches that is still counted."""


class Hypothesis(NamedTuple):
    """One guess.

    Attributes:
        place: index in the source of the token that comes next.
        weight: how good, relative to the best, which has 0.
        run: matches in a row up to here, at most `RUN_CAP`.
    """

    place: int
    weight: float
    run: int


class Edit(NamedTuple):
    """A stretch of the source that the answer wrote otherwise.

    Attributes:
        start, end: the source tokens that were replaced.
        emitted: the first emitted token that replaces them, counted from the answer's start.
        emitted_end: the token behind the last.
    """

    start: int
    end: int
    emitted: int
    emitted_end: int


class Alignment:
    """Follows one answer.

    Attributes:
        source: token ids.
        beam: the hypotheses, best first; never empty.
        edits: how often the best one was contradicted so far.
        unmatched: tokens emitted since the last divergence; 0 where the place is firm.
        divergence: index of the source token that the last divergence met.
        open_edit: index in the answer of the first token of an edit that still goes on.
    """

    def __init__(self, source: Sequence[int]) -> None:
        self.source = source
        self.beam = [Hypothesis(0, 0.0, FIRM)]
        self.edits = 0
        self.unmatched = 0
        self.divergence = 0
        self.open_edit: int | None = None
        self._open_place = 0
        self._run = 0
        self._emitted = 0
        self._places: dict[int, list[int]] = {}
        for place, token in enumerate(source):
            self._places.setdefault(token, []).append(place)

    @property
    def is_firm(self) -> bool:
        """Whether the place is known: nothing was edited since the last `FIRM` matches."""
        return self.unmatched == 0 and self.beam[0].run >= FIRM

    def advance(self, token: int) -> Edit | None:
        """Advance by an emitted token; return the edit that it shows to be over, if any."""
        place, _, run = self.beam[0]
        if place < len(self.source) and self.source[place] == token:
            self._run += 1
            if self._run >= FIRM or not self.edits:
                self.beam = [Hypothesis(place + 1, 0.0, min(run + 1, RUN_CAP))]
                self.unmatched = 0
                self._emitted += 1
                return self._close_edit()
        else:
            if self._run >= 2 or not self.unmatched:
                self.divergence = place
                self.unmatched = 0
            self._run = 0
            self.edits += 1
            if self.open_edit is None:
                self.open_edit = self._emitted
                self._open_place = place
        self.unmatched += 1
        self.beam = self._next_beam(token)
        self._emitted += 1
        return self._close_edit()

    def _close_edit(self) -> Edit | None:
        if self.open_edit is None or self.beam[0].run < 2:
            return None
        place, _, run = self.beam[0]
        edit = Edit(self._open_place, place - run, self.open_edit, self._emitted - run)
        self.open_edit = None
        return edit if edit.end >= edit.start and edit.emitted_end >= edit.emitted else None

    def _next_beam(self, token: int) -> list[Hypothesis]:
        best: dict[int, tuple[float, int]] = {}
        source, end = self.source, len(self.source)
        places = self._places.get(token, ())

        def relax(place: int, weight: float, run: int) -> None:
            known = best.get(place)
            if known is None or weight > known[0]:
                best[place] = (weight, run)

        for place, weight, run in self.beam:
            if place < end:
                if source[place] == token:
                    relax(place + 1, weight + MATCH, min(run + 1, RUN_CAP))
                else:
                    relax(place + 1, weight + SUBSTITUTE, 0)
            relax(place, weight + INSERT, 0)
            first = bisect_left(places, place + 1)
            for skipped_to in places[first : first + OCCURRENCES]:
                left_out = skipped_to - place
                if left_out >= SKIP_REACH:
                    break
                relax(skipped_to + 1, weight + MATCH + DELETE + DELETE_EACH * left_out, 1)
        ranked = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:BEAM]
        top = ranked[0][1][0]
        # Weights are kept relative to the best, so that they never grow without bound.
        return [Hypothesis(place, weight - top, run) for place, (weight, run) in ranked]
