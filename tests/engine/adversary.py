"""A drafter that knows the right answer and uses it to mislead."""

from __future__ import annotations

import random
from collections.abc import Sequence

from drafters.core import Draft, DraftContext


class AdversarialDrafter:
    """Drafts of random length: right, wrong, half right, or none.

    Args:
        answer: what the target writes alone.
        vocabulary: token ids are below this.
        seed: of the random choices.
    """

    def __init__(self, answer: Sequence[int], vocabulary: int, seed: int) -> None:
        self._answer = list(answer)
        self._vocabulary = vocabulary
        self._random = random.Random(seed)
        self._emitted = 0

    def begin(self, context: DraftContext) -> None:
        self._emitted = 0

    def propose(self, limit: int) -> Draft:
        length = self._random.randint(0, limit)
        right = self._answer[self._emitted : self._emitted + length]
        kind = self._random.choice(["right", "wrong", "half", "shifted"])
        if kind == "right":
            tokens = right
        elif kind == "wrong":
            tokens = [self._random.randrange(self._vocabulary) for _ in range(length)]
        elif kind == "half":
            cut = self._random.randint(0, len(right))
            tokens = right[:cut] + [
                self._random.randrange(self._vocabulary) for _ in range(length - cut)
            ]
        else:
            tokens = self._answer[self._emitted + 1 : self._emitted + 1 + length]
        return Draft(tokens, "adversary", self._random.random())

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        self._emitted += len(accepted) + 1
