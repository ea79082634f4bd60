"""What a draft model is to the drafters: a small causal model that says what comes next.

The model itself is handed in, so that this room needs no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from drafters.gains import Costs, Gains


class Saying(NamedTuple):
    """The small model's likeliest next token, and the probability that it gives to it."""

    token: int
    probability: float


class DraftModel(Protocol):
    """A small causal model with the target's tokenizer.

    Attributes:
        gains: what was learnt about its use; kept from answer to answer.
    """

    gains: Gains

    def costs(self, context: Sequence[int]) -> Costs:
        """Return what asking it behind `context` would cost now; cheap."""
        ...

    def say(self, tokens: Sequence[int], rows: int) -> list[Saying]:
        """Return what it says behind each of the last `rows` of `tokens`, of one pass.

        So a copied run, which somebody else has drafted, costs it one pass and not one for
        each token. Empty where it has too much to read first, or has no room for so many tokens.
        """
        ...
