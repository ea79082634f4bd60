"""How much of a draft to verify: the window with the most expected tokens a second.

A pass of 1 + n rows emits one token and every drafted one up to the first refusal. With
p_i the chance that drafted token i is accepted after those before it, that is
1 + p_1 + p_1 p_2 + ... tokens; divided by what such a pass costs here (engine/cost.py) it
is a rate, and the best n is looked for among all of them (the rule of Leviathan et al.
2023, section 3.3, with measured costs and learnt chances instead of one constant).

Zero regret: where no draft of a kind pays, none is verified, except a short probe that
comes less and less often while it finds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from drafters.core import Draft
from engine.cost import CostModel

MATCH_KINDS = 8
"""Drafts are told apart by how long the match behind them is, in doublings of certainty."""

STEPS = (0, 1, 3, 7, 15)
"""Places in a draft where the chance of acceptance is learnt separately: from each of
these on. A draft that has been right for long is seldom wrong next."""

PRIOR = (0.5, 0.8, 0.9, 0.95, 0.97)
"""Chance at each step before anything is known; the first is replaced by the confidence."""

PRIOR_WEIGHT = 4.0
"""How many observations the prior counts as."""

MEMORY = 200.0
"""Observations after which older ones fade."""

LONGEST_REST = 64
"""Passes between two probes of a kind of draft that has stopped paying, at most."""

Kind = tuple[str, int]


class Acceptance:
    """What was learnt about drafts; kept from answer to answer.

    A kind of draft is its origin and the length of the match behind it.
    """

    def __init__(self) -> None:
        self._counts: dict[Kind, list[list[float]]] = {}

    def chances(self, draft: Draft) -> list[float]:
        """Return for each drafted token the chance that it is accepted after those before."""
        counts = self._of(kind_of(draft))
        by_step = [
            (accepted + PRIOR_WEIGHT * _prior(step, draft.confidence)) / (tried + PRIOR_WEIGHT)
            for step, (accepted, tried) in enumerate(counts)
        ]
        return [by_step[_step(place)] for place in range(len(draft.tokens))]

    def observe(self, draft: Draft, accepted: int) -> None:
        """Learn from a verified draft: `accepted` tokens were right, the next one wrong."""
        counts = self._of(kind_of(draft))
        for place in range(min(accepted + 1, len(draft.tokens))):
            count = counts[_step(place)]
            fading = 1.0 - 1.0 / MEMORY
            count[0] = count[0] * fading + (place < accepted)
            count[1] = count[1] * fading + 1.0

    def _of(self, kind: Kind) -> list[list[float]]:
        return self._counts.setdefault(kind, [[0.0, 0.0] for _ in STEPS])


class WindowPolicy:
    """Chooses the draft length of each pass of one answer.

    Args:
        cost: what passes cost here.
        acceptance: what was learnt from earlier answers; goes on learning.
        longest: most tokens ever drafted in one pass.
    """

    def __init__(self, cost: CostModel, acceptance: Acceptance, longest: int) -> None:
        self._cost = cost
        self._acceptance = acceptance
        self.longest = longest
        self._rests: dict[Kind, Rest] = {}

    def cut(self, draft: Draft, context: int) -> int:
        """Return how many of the draft's tokens to verify over `context` tokens."""
        if not draft.tokens:
            return 0
        chances = self._acceptance.chances(draft)
        length = best_length(chances, self._cost.staircase(context, len(chances) + 1))
        if length:
            return length
        rest = self._rests.setdefault(kind_of(draft), Rest())
        return 1 if rest.is_over() else 0

    def observe(self, draft: Draft, accepted: int, context: int, seconds: float) -> None:
        """Learn from one pass: the part of the draft that was verified, and its time."""
        self._cost.observe(len(draft.tokens) + 1, context, seconds)
        if not draft.tokens:
            return
        self._acceptance.observe(draft, accepted)
        rest = self._rests.get(kind_of(draft))
        if rest is not None:
            rest.observe(accepted > 0)


class Rest:
    """Counts passes between two probes; twice as many after each that found nothing."""

    def __init__(self) -> None:
        self._length = 1
        self._left = 0

    def is_over(self) -> bool:
        """Count one pass; return whether it may probe."""
        if self._left == 0:
            return True
        self._left -= 1
        return False

    def observe(self, found: bool) -> None:
        """Learn what a probe found."""
        self._length = 1 if found else min(2 * self._length, LONGEST_REST)
        self._left = 0 if found else self._length


def best_length(chances: Sequence[float], staircase: Sequence[float]) -> int:
    """Return the draft length with the most expected tokens a second.

    Args:
        chances: of each drafted token, after those before it.
        staircase: seconds of passes of 1, 2, ... rows, one more than `chances`.
    """
    best, best_rate = 0, 1.0 / staircase[0]
    tokens = alive = 1.0
    for length, chance in enumerate(chances, 1):
        alive *= chance
        tokens += alive
        rate = tokens / staircase[length]
        if rate > best_rate:
            best, best_rate = length, rate
    return best


def kind_of(draft: Draft) -> Kind:
    """Return origin and match length (as doublings of certainty) of a draft."""
    doubt = max(1.0 - draft.confidence, 2.0**-MATCH_KINDS)
    return draft.origin, min(int(-math.log2(doubt)), MATCH_KINDS - 1)


def _step(place: int) -> int:
    return sum(place >= first for first in STEPS) - 1


def _prior(step: int, confidence: float) -> float:
    return min(max(confidence, 0.05), 0.95) if step == 0 else PRIOR[step]
