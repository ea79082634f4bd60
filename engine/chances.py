"""How likely drafted tokens are, learnt from what became of earlier ones.

Tokens of a main chain are told apart by origin, by the length of the match behind the
draft, and by their place. A side branch begins where the tokens before it, those with the
same parent, are wrong: its chance is learnt among just those cases, by how many came
before it. So the chances of all tokens that follow one never add up to more than one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from drafters.core import Draft
from engine.tree import children_of, main_length

MATCH_KINDS = 8
"""Drafts are told apart by how long the match behind them is, in doublings of certainty."""

STEPS = (0, 1, 3, 7, 15)
"""Places in a draft where the chance of acceptance is learnt separately: from each of
these on. A draft that has been right for long is seldom wrong next."""

PRIOR = (0.5, 0.8, 0.9, 0.95, 0.97)
"""Chance at each step before anything is known; the first is replaced by the confidence."""

BRANCH = "branch"
"""Origin of the tokens of side branches, whoever drafted them."""

BRANCH_CONFIDENCE = 0.25
"""Chance of a branch's first token, where those before it are wrong, before anything is
known. It is soon known: what the target says there judges all branches, verified or not."""

BRANCH_RANKS = 4
"""From this many tokens with the same parent on, branches count as one kind."""

PRIOR_WEIGHT = 4.0
"""How many observations the prior counts as."""

MEMORY = 200.0
"""Observations after which older ones fade."""

Kind = tuple[str, int]


class Place(NamedTuple):
    """Where a drafted token stands, as far as its chance is concerned.

    Attributes:
        kind: of the draft or the branch.
        step: index into `STEPS`.
        confidence: prior chance of a first token.
    """

    kind: Kind
    step: int
    confidence: float


class Acceptance:
    """What was learnt about drafts; kept from answer to answer."""

    def __init__(self) -> None:
        self._counts: dict[Kind, list[list[float]]] = {}

    def chances(self, draft: Draft) -> list[float]:
        """Return for each drafted token the chance that the text goes through it."""
        chances = [0.0] * len(draft.tokens)
        for parent, children, places in _families(draft):
            left = chances[parent] if parent >= 0 else 1.0
            for child, place in zip(children, places, strict=True):
                chances[child] = left * self._chance(place)
                left -= chances[child]
        return chances

    def observe(
        self, draft: Draft, verified: Sequence[int], path: Sequence[int], next_token: int
    ) -> None:
        """Learn from a pass.

        Args:
            draft: as it was proposed.
            verified: which of its tokens were.
            path: which were accepted.
            next_token: what the target said after them.
        """
        main, known = main_length(draft), set(verified)
        said = [*(draft.tokens[node] for node in path), next_token]
        after = dict(zip([-1, *path], said, strict=True))
        for parent, children, places in _families(draft):
            if parent not in after:
                continue
            for child, place in zip(children, places, strict=True):
                right = draft.tokens[child] == after[parent]
                # A main chain is judged where it was verified: what is rested stays so until
                # a probe has found something.
                if child >= main or child in known:
                    self._count(place, right)
                if right:
                    break

    def _chance(self, place: Place) -> float:
        right, tried = self._of(place)
        prior = PRIOR[place.step]
        if place.step == 0:
            prior = min(max(place.confidence, 0.05), 0.95)
        return (right + PRIOR_WEIGHT * prior) / (tried + PRIOR_WEIGHT)

    def _count(self, place: Place, right: bool) -> None:
        count = self._of(place)
        fading = 1.0 - 1.0 / MEMORY
        count[0] = count[0] * fading + right
        count[1] = count[1] * fading + 1.0

    def _of(self, place: Place) -> list[float]:
        return self._counts.setdefault(place.kind, [[0.0, 0.0] for _ in STEPS])[place.step]


def kind_of(draft: Draft) -> Kind:
    """Return origin and match length (as doublings of certainty) of a draft."""
    doubt = max(1.0 - draft.confidence, 2.0**-MATCH_KINDS)
    return draft.origin, min(int(-math.log2(doubt)), MATCH_KINDS - 1)


def _families(draft: Draft) -> Iterator[tuple[int, list[int], list[Place]]]:
    """Yield each token with those that follow it, in order, parents first.

    Of equal tokens behind one only the first counts, since it is the one that is accepted.
    """
    main, kind = main_length(draft), kind_of(draft)
    inside: dict[int, int] = {}  # how far a token stands from the beginning of its branch
    for row, following in enumerate(children_of(draft.parents, len(draft.tokens))):
        children = sorted({draft.tokens[child]: child for child in reversed(following)}.values())
        places = []
        for rank, child in enumerate(children):
            if child < main:
                places.append(Place(kind, _step(child), draft.confidence))
                continue
            inside[child] = inside.get(row - 1, 0) + 1 if rank == 0 else 0
            branch = BRANCH, min(rank, BRANCH_RANKS)
            places.append(Place(branch, _step(inside[child]), BRANCH_CONFIDENCE))
        if children:
            yield row - 1, children, places


def _step(place: int) -> int:
    return sum(place >= first for first in STEPS) - 1
