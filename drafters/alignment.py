"""Where in the source the answer stands: the known place, or a few weighted hypotheses.

While the answer copies, the place is known and moves on with every token. When a token
contradicts it, that place is remembered as the divergence, and hypotheses are made anew
with every token: each place of the source before which the last tokens stand too. Long
matches weigh more, and so do places near the divergence: behind it for a deletion or a
replacement, at it for an insertion, before it for a moved or repeated block. So the place is
found again within a token or two, at the place that the alignment says and not at the first
equal n-gram.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

HYPOTHESES = 8
"""Hypotheses kept."""

AHEAD, BACK = 8, 4
"""Occurrences of a token that are tried behind and before the divergence, nearest first."""

SUBSTITUTIONS = 3
"""Tokens since the divergence up to which one is taken to replace another."""

FIRM = 4
"""Matches in a row after which the place counts as known."""

RUN_CAP = 32
"""Longest run of matches that is still counted."""

LEFT_OUT, FARTHEST = 0.015, 3.0
"""Weight lost for each token left out, at most so much."""

BACKWARD, EACH_BACK, FARTHEST_BACK = 1.0, 0.02, 4.0
"""Weight lost for going back, for each token, at most so much."""

SUBSTITUTED, INSERTED = -0.2, -0.3
"""Weights of places that no token speaks for yet."""


class Hypothesis(NamedTuple):
    """One guess.

    Attributes:
        place: index in the source of the token that comes next.
        weight: larger is likelier.
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
        beam: the hypotheses, best first; never empty; one where the place is known.
        is_firm: whether the place is known.
        edits: how often the known place was contradicted so far.
        unmatched: tokens emitted since the last divergence; 0 where the place is known.
        divergence: index of the source token that the last divergence met.
        earlier: the divergence before that; a repeated block goes on there.
        open_edit: index in the answer of the first token of an edit that still goes on.
    """

    def __init__(self, source: Sequence[int]) -> None:
        self.source = source
        self.beam = [Hypothesis(0, 0.0, FIRM)]
        self.is_firm = True
        self.edits = 0
        self.unmatched = 0
        self.divergence = 0
        self.earlier = 0
        self.open_edit: int | None = None
        self._emitted: list[int] = []
        self._places: dict[int, list[int]] = {}
        for place, token in enumerate(source):
            self._places.setdefault(token, []).append(place)

    def advance(self, token: int) -> Edit | None:
        """Advance by an emitted token; return the edit that it shows to be over, if any."""
        place, _, run = self.beam[0]
        self._emitted.append(token)
        if self.is_firm:
            if place < len(self.source) and self.source[place] == token:
                self.beam = [Hypothesis(place + 1, 0.0, min(run + 1, RUN_CAP))]
                return None
            self.is_firm = False
            self.edits += 1
            self.earlier, self.divergence = self.divergence, place
            self.open_edit = len(self._emitted) - 1
            self.beam = []
        self.unmatched += 1
        self.beam = self._hypotheses(token)
        place, _, run = self.beam[0]
        edit = self._close_edit(place, run) if run >= 2 else None
        if run >= FIRM:
            self.is_firm = True
            self.unmatched = 0
            self.open_edit = None
            self.beam = self.beam[:1]
        return edit

    def _close_edit(self, place: int, run: int) -> Edit | None:
        if self.open_edit is None:
            return None
        run = min(run, len(self._emitted) - self.open_edit)
        start, end = self.divergence, place - run
        emitted, emitted_end = self.open_edit, len(self._emitted) - run
        if end < start:
            return None
        self.open_edit = None
        return Edit(start, end, emitted, emitted_end)

    def _hypotheses(self, token: int) -> list[Hypothesis]:
        source, here = self.source, self.divergence
        places = self._places.get(token, ())
        middle = bisect_left(places, here)
        tried = {*places[max(middle - BACK, 0) : middle + AHEAD]}
        tried.update(
            h.place for h in self.beam if h.place < len(source) and source[h.place] == token
        )
        found = [self._weighed(place + 1) for place in tried]
        if self.unmatched <= SUBSTITUTIONS and here + self.unmatched <= len(source):
            found.append(Hypothesis(here + self.unmatched, SUBSTITUTED * self.unmatched, 0))
        found.append(Hypothesis(here, INSERTED, 0))
        found.sort(key=lambda h: (-h.weight, h.place))
        return found[:HYPOTHESES]

    def _weighed(self, place: int) -> Hypothesis:
        """Return the hypothesis of a place before which the last token stands."""
        source, emitted = self.source, self._emitted
        run, most = 1, min(RUN_CAP, place, len(emitted))
        while run < most and source[place - 1 - run] == emitted[-1 - run]:
            run += 1
        left_out = place - run - self.divergence
        if left_out >= 0:
            loss = min(LEFT_OUT * left_out, FARTHEST)
        else:
            loss = min(BACKWARD - EACH_BACK * left_out, FARTHEST_BACK)
        return Hypothesis(place, min(run, 12) - loss, run)
