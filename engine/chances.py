"""How likely drafted tokens are, learnt from what became of earlier ones.

Where a drafter says how likely it thinks each token is, what is learnt is how far that can
be trusted, by origin and by what it said. Else the tokens of a main chain are told apart by
origin, by the length of the match behind the draft, and by their place. A side branch
begins where the tokens before it, those with the same parent, are wrong: its chance is
learnt among just those cases. So the chances of all tokens that follow one never add up to
more than one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from drafters.core import MODEL, Draft
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
        prior: chance before anything is known.
    """

    kind: Kind
    step: int
    prior: float


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
        return (right + PRIOR_WEIGHT * place.prior) / (tried + PRIOR_WEIGHT)

    def _count(self, place: Place, right: bool) -> None:
        count = self._of(place)
        fading = 1.0 - 1.0 / MEMORY
        count[0] = count[0] * fading + right
        count[1] = count[1] * fading + 1.0

    def _of(self, place: Place) -> list[float]:
        return self._counts.setdefault(place.kind, [[0.0, 0.0] for _ in STEPS])[place.step]


def kind_of(draft: Draft) -> Kind:
    """Return origin and match length (as doublings of certainty) of a draft."""
    return draft.origin, _certainty(draft.confidence)


def _families(draft: Draft) -> Iterator[tuple[int, list[int], list[Place]]]:
    """Yield each token with those that follow it, in order, parents first.

    Of equal tokens behind one only the first counts, since it is the one that is accepted.
    """
    place_of = _said_places(draft) if draft.chances else _counted_places(draft)
    for row, following in enumerate(children_of(draft.parents, len(draft.tokens))):
        children = sorted({draft.tokens[child]: child for child in reversed(following)}.values())
        places = [place_of(row - 1, rank, child) for rank, child in enumerate(children)]
        if children:
            yield row - 1, children, places


PlaceOf = Callable[[int, int, int], Place]
"""Takes a token's parent, how many siblings stand before it, and its index."""


def _counted_places(draft: Draft) -> PlaceOf:
    """Tell tokens apart by where they stand."""
    main, kind = main_length(draft), kind_of(draft)
    inside: dict[int, int] = {}  # how far a token stands from the beginning of its branch

    def place_of(parent: int, rank: int, child: int) -> Place:
        if child < main:
            return Place(kind, _step(child), _prior(_step(child), draft.confidence))
        inside[child] = inside.get(parent, 0) + 1 if rank == 0 else 0
        step = _step(inside[child])
        return Place((BRANCH, min(rank, BRANCH_RANKS)), step, _prior(step, BRANCH_CONFIDENCE))

    return place_of


def _said_places(draft: Draft) -> PlaceOf:
    """Tell tokens apart by how likely the drafter says they are where they are asked for."""
    main = main_length(draft)
    left: dict[int, float] = {}  # the chance at each parent that no child so far was right

    def place_of(parent: int, rank: int, child: int) -> Place:
        before = left.get(parent, draft.chances[parent] if parent >= 0 else 1.0)
        left[parent] = max(before - draft.chances[child], 0.0)
        said = min(max(draft.chances[child] / before if before > 0.0 else 0.0, 0.01), 0.99)
        if draft.origins and draft.origins[child] == MODEL:
            origin = MODEL
        else:
            origin = draft.origin if child < main else BRANCH
        # Doublings of certainty upwards from a half, of doubt downwards.
        bucket = _certainty(said) if said >= 0.5 else -_certainty(1.0 - said)
        return Place((f"said by {origin}", bucket), 0, said)

    return place_of


def _certainty(chance: float) -> int:
    return min(int(-math.log2(max(1.0 - chance, 2.0**-MATCH_KINDS))), MATCH_KINDS - 1)


def _prior(step: int, confidence: float) -> float:
    return min(max(confidence, 0.05), 0.95) if step == 0 else PRIOR[step]


def _step(place: int) -> int:
    return sum(place >= first for first in STEPS) - 1
