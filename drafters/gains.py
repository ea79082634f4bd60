"""What a draft model has gained so far, and what asking it costs: numbers, no model."""

from __future__ import annotations

from typing import NamedTuple

PRIOR = 0.8
"""Chance that the small model knows the token where nobody else does, before it is learnt."""

PRIOR_WEIGHT = 6.0

FADING = 0.99
"""What is left of the learnt after one more observation, or a pass in which asking did not
pay: what was once useless is so tried again, ever more seldom while it stays so."""


class Costs(NamedTuple):
    """Seconds on this device; any unit will do, as long as it is the same for all.

    Attributes:
        target: of the target's pass over a draft.
        model: of the small model's pass over one token.
        row: what each further token adds to that.
        unread: of reading what the small model lacks of the context.
    """

    target: float = 1.0
    model: float = 0.0
    row: float = 0.0
    unread: float = 0.0


FREE = Costs()


class Gains:
    """Learns how often the small model is right where the others draft nothing right.

    One for each draft model, kept from answer to answer.
    """

    def __init__(self) -> None:
        self._right = 0.0
        self._tried = 0.0

    @property
    def chance(self) -> float:
        """That the small model's token is right where no other drafted token is."""
        return (self._right + PRIOR_WEIGHT * PRIOR) / (self._tried + PRIOR_WEIGHT)

    def observe(self, right: bool) -> None:
        """Learn from one place where it was asked and the others were all wrong."""
        self.forget()
        self._right += right
        self._tried += 1.0

    def forget(self) -> None:
        """Count a pass in which it was not asked."""
        self._right *= FADING
        self._tried *= FADING
