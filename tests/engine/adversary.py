"""A drafter that knows the right answer and uses it to mislead."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from drafters.core import Draft, DraftContext
from drafters.gains import Costs, Gains
from drafters.model import Saying
from engine.window import WindowPolicy


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


class AdversarialTrees(AdversarialDrafter):
    """Trees of random shapes: side branches anywhere, deep, right, wrong, or said twice."""

    def propose(self, limit: int) -> Draft:
        main = super().propose(self._random.randint(0, limit))
        tokens = list(main.tokens)
        parents = list(range(-1, len(tokens) - 1))
        depths = list(range(len(tokens)))
        deep = self._random.random()
        while tokens and len(tokens) < limit:
            goes_on = self._random.random() < deep
            parent = len(tokens) - 1 if goes_on else self._random.randint(-1, len(tokens) - 1)
            depth = depths[parent] + 1 if parent >= 0 else 0
            right = self._answer[self._emitted + depth : self._emitted + depth + 1]
            siblings = [t for t, p in zip(tokens, parents, strict=True) if p == parent]
            kind = self._random.choice(["right", "right", "wrong", "double"])
            if kind == "double" and siblings:
                token = self._random.choice(siblings)
            elif kind == "right" and right:
                token = right[0]
            else:
                token = self._random.randrange(self._vocabulary)
            tokens.append(token)
            parents.append(parent)
            depths.append(depth)
        return main._replace(tokens=tokens, parents=parents)


class Everything(WindowPolicy):
    """Verifies whole drafts, so that the adversary chooses the trees."""

    def choose(self, draft, context):
        return list(range(len(draft.tokens)))


def random_parents(choice: random.Random, count: int) -> list[int]:
    """Return the parents of a token tree of random shape, from a chain to a star."""
    deep = choice.random()
    return [i - 1 if choice.random() < deep else choice.randint(-1, i - 1) for i in range(count)]


class LyingModel:
    """A draft model that knows the answer: right, wrong, silent or unread, as chance will."""

    def __init__(self, prompt: Sequence[int], answer: Sequence[int], vocabulary: int, seed: int):
        self._text = [*prompt, *answer]
        self._vocabulary = vocabulary
        self._random = random.Random(seed)
        self.gains = Gains()
        self.asked = 0

    def session(self) -> LyingModel:
        return self

    def costs(self, context: Sequence[int]) -> Costs:
        return Costs(unread=self._random.choice((0.0, 0.5)))

    def say(self, tokens: Sequence[int], rows: int) -> list[Saying]:
        self.asked += 1
        if self._random.random() < 0.1:
            return []
        return [self._saying(length) for length in range(len(tokens) - rows + 1, len(tokens) + 1)]

    def _saying(self, length: int) -> Saying:
        right = self._random.random() < 0.6 and length < len(self._text)
        token = self._text[length] if right else self._random.randrange(self._vocabulary)
        return Saying(token, self._random.random())

    def read(self) -> Iterator[None]:
        yield from ()

    def close(self) -> None:
        pass
