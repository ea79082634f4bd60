"""Drafts by knowing where in the source the answer stands.

A few alignment hypotheses, each a position in the source with a weight, are advanced
with every emitted token, as an online edit distance would be (Wagner and Fischer 1974,
kept to a beam): the token matches the source, replaces a token of it, was inserted, or
follows a stretch that was left out. The draft continues the heaviest hypothesis. After
an edit the place is found again as soon as one or two tokens match, at the place that
the alignment says and not at the first equal n-gram.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from drafters.core import NO_DRAFT, NO_TOKENS, Draft, DraftContext

BEAM = 8
"""Hypotheses kept."""

SKIP_REACH = 200
"""How many source tokens a deletion may leave out at once."""

MATCH, SUBSTITUTE, INSERT, DELETE = 1.0, -2.0, -2.2, -2.4
DELETE_EACH = -0.02
"""Weight of each left-out token, so that near places win over far ones."""

RUN_CAP = 32
"""Longest run of matches that is still counted."""


class SourceDrafter:
    """Copies on from the place in the source where the answer stands."""

    def __init__(self) -> None:
        self._source: Sequence[int] = NO_TOKENS
        self._places: dict[int, list[int]] = {}
        self._beam: list[tuple[int, float]] = []
        self._run = 0
        self._edits = 0

    def begin(self, context: DraftContext) -> None:
        """Index the source and stand at its start."""
        self._source = context.source
        self._places = {}
        for place, token in enumerate(context.source):
            self._places.setdefault(token, []).append(place)
        self._beam = [(0, 0.0)]
        self._run = 0
        self._edits = 0

    def propose(self, limit: int) -> Draft:
        """Return the source from the best place on; empty past the end of the source."""
        if not self._beam:
            return NO_DRAFT  # not begun
        place = self._beam[0][0]
        tokens = self._source[place : place + limit]
        if not tokens:
            return NO_DRAFT
        return Draft(tokens, "source", self._confidence(), place)

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Advance every hypothesis by the tokens that the target emitted."""
        for token in accepted:
            self._advance(token)
        self._advance(next_token)

    def _confidence(self) -> float:
        # Right after an edit nothing has matched yet: a coin toss. Each matching
        # token since then halves the doubt.
        if not self._edits:
            return 0.9
        return 1.0 - 0.5 ** (1 + min(self._run, RUN_CAP))

    def _advance(self, token: int) -> None:
        place, _ = self._beam[0]
        if place < len(self._source) and self._source[place] == token:
            self._run = min(self._run + 1, RUN_CAP)
            if self._run >= 4 or not self._edits:
                # Firmly aligned: the other hypotheses have had their chance.
                self._beam = [(place + 1, 0.0)]
                return
        else:
            self._run = 0
            self._edits += 1
        self._beam = self._next_beam(token)

    def _next_beam(self, token: int) -> list[tuple[int, float]]:
        best: dict[int, float] = {}

        def relax(place: int, weight: float) -> None:
            if weight > best.get(place, -1e9):
                best[place] = weight

        end = len(self._source)
        for place, weight in self._beam:
            if place < end and self._source[place] == token:
                relax(place + 1, weight + MATCH)
            elif place < end:
                relax(place + 1, weight + SUBSTITUTE)
            relax(place, weight + INSERT)
            for skipped_to in self._occurrences(token, place + 1, place + SKIP_REACH):
                left_out = skipped_to - place
                relax(skipped_to + 1, weight + MATCH + DELETE + DELETE_EACH * left_out)
        ranked = sorted(best.items(), key=lambda item: (-item[1], item[0]))[:BEAM]
        top = ranked[0][1]
        # Weights are kept relative to the best, so that they never grow without bound.
        return [(place, weight - top) for place, weight in ranked]

    def _occurrences(self, token: int, low: int, high: int) -> Sequence[int]:
        places = self._places.get(token, ())
        first = bisect_left(places, low)
        return [place for place in places[first : first + 4] if place < high]
