"""Fills the rows of a pass with the likeliest tokens: a tree, grown best first.

Each drafted token has the chance that it and all before it are accepted. The row budget is
spent on the tokens with the highest such chances, which gives the most expected accepted
tokens (the greedy construction of Sequoia, Chen et al. 2024, and EAGLE-2, Li et al. 2024).
Long copies are followed without asking again for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from drafters.cursors import NO_CHOICES, SURE, Cursor
from drafters.forecast import Forecast
from drafters.memory import Rule
from drafters.odds import LENGTH_STEP
from drafters.projection import Choice

SURE_MATCH = 8
"""Length of a match from which it is followed without looking at anything else."""

LEAST_CHANCE = 0.004
"""Less likely tokens are not drafted."""

FORECASTS = 8
"""Places of a tree at which all candidates are weighed."""

ADVANTAGE = 4
"""How much longer a match must be than a run in the source, to be followed instead."""

ELSEWHERE = 0.8
"""Chance that the source goes on plainly where a rule does not hold."""

EASY = 0.15
"""Worth of a token of a sure copy beside one of new text: left out now, it comes with the
next pass among many others, while a missed token of new text costs a pass."""

FOLLOWED = -2
"""Stands for the reason of a run that is followed already."""

GOES_ON = (0.85, 0.9, 0.92, 0.94, 0.955, 0.97, 0.978, 0.985, 0.99)
"""Chance that a copy holds for one more token, by the bucket of its length."""

KNOWN_GOES_ON = 0.995
"""The same where the place in the source was known before the draft."""


class Decision(NamedTuple):
    """Where a rule was taken or not: what it said, and what the source said."""

    taken: int
    plain: int | None
    rule: Rule


class Node(NamedTuple):
    """A token that may be drafted next.

    `rank` is negative: its chance, or less for a token of a sure copy.
    """

    rank: float
    order: int
    parent: int
    token: int
    cursors: Sequence[Cursor]
    match: tuple[int, int] | None
    before: int
    chance: float


Look = Callable[[Sequence[Cursor], tuple[int, int] | None, int, int], Forecast]
"""Forecast behind a drafted token: its cursors, its match, the token, the one before it."""


class Tree:
    """A growing draft.

    Args:
        limit: most tokens.
        history: all tokens so far; matches are followed in it.
        source: where rules that do not hold leave the answer.
        look: weighs all candidates behind a drafted token.
        single: grow a chain, for a target that verifies no trees.

    Attributes:
        tokens, parents: as in `Draft`, in the order of their chances.
        chances: that the text goes through each token.
        children: index of each drafted token by its parent and itself.
        forecasts: the forecast made at each place, by the index of the token before it.
        decisions: where rules act, likewise.
    """

    def __init__(
        self,
        limit: int,
        history: Sequence[int],
        source: Sequence[int],
        look: Look,
        single: bool,
    ) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.chances: list[float] = []
        self.children: dict[tuple[int, int], int] = {}
        self.forecasts: dict[int, Forecast] = {}
        self.decisions: dict[int, Decision] = {}
        self._limit = limit
        self._history = history
        self._source = source
        self._look = look
        self._single = single
        self._heap: list[Node] = []
        self._order = 0
        self._easy = EASY
        self._goes_on = GOES_ON

    def grow(self, root: Forecast, cursors: Sequence[Cursor], last: int) -> None:
        """Fill the rows, beginning with the forecast at the root."""
        self._branch(-1, 1.0, root, cursors, last)
        while self._heap and len(self.tokens) < self._limit:
            node = heappop(self._heap)
            if (node.parent, node.token) in self.children:
                continue
            index = self._add(node.parent, node.token, node.chance)
            run = _longest(node, self._history)
            busy = len(self.forecasts) >= FORECASTS
            if run is not None and (
                busy or run.run >= (SURE_MATCH if run.origin == "ngram" else SURE)
            ):
                self._follow(index, node.chance, run)
            elif not busy:
                forecast = self._look(node.cursors, node.match, node.token, node.before)
                self._branch(index, node.chance, forecast, node.cursors, node.token)

    def follow_from_root(self, run: Cursor) -> None:
        """Fill the rows with one sure copy, and what a rule may say otherwise in it."""
        self._easy = 1.0
        self._goes_on = (KNOWN_GOES_ON,) * len(GOES_ON)
        self._follow(-1, 1.0, run)
        while self._heap and len(self.tokens) < self._limit:
            node = heappop(self._heap)
            if (node.parent, node.token) in self.children:
                continue
            index = self._add(node.parent, node.token, node.chance)
            run_on = _longest(node, self._history)
            if run_on is not None:
                self._follow(index, node.chance, run_on)

    def _add(self, parent: int, token: int, chance: float) -> int:
        index = len(self.tokens)
        self.tokens.append(token)
        self.parents.append(parent)
        self.chances.append(chance)
        self.children[parent, token] = index
        return index

    def _push(
        self,
        chance: float,
        parent: int,
        token: int,
        cursors: Sequence[Cursor],
        match: tuple[int, int] | None,
        before: int,
        worth: float = 1.0,
    ) -> None:
        self._order += 1
        node = Node(-chance * worth, self._order, parent, token, cursors, match, before, chance)
        heappush(self._heap, node)

    def _branch(
        self, index: int, chance: float, forecast: Forecast, cursors: Sequence[Cursor], token: int
    ) -> None:
        self.forecasts[index] = forecast
        for cursor in cursors:
            choice = cursor.choices.get(cursor.index) if cursor.choices else None
            if choice is not None and cursor.index < len(cursor.tokens):
                self._decide(index, cursor.tokens[cursor.index], choice)
        chances = forecast.outlook.chances
        if self._single and chances:
            best = max(chances, key=chances.__getitem__)
            chances = {best: chances[best]}
        for candidate, own in chances.items():
            if chance * own >= LEAST_CHANCE:
                self._push(
                    chance * own,
                    index,
                    candidate,
                    forecast.cursors.get(candidate, ()),
                    forecast.match.get(candidate),
                    token,
                )

    def _decide(self, index: int, taken: int, choice: Choice) -> int | None:
        plain = choice.plain
        token = self._source[plain] if plain is not None and plain < len(self._source) else None
        self.decisions[index] = Decision(taken, token, choice.rule)
        return token

    def _follow(self, index: int, chance: float, run: Cursor) -> None:
        """Draft along a run while nothing else is likelier."""
        tokens, at, length, _, choices, origin = run
        end = len(tokens)
        goes_on = self._goes_on
        chance *= goes_on[LENGTH_STEP[length if length < 32 else 32]]
        while at < end and len(self.tokens) < self._limit:
            if choices and at in choices:
                chance = self._choose(index, chance, run, at, length)
            if self._heap and chance * self._easy < -self._heap[0].rank:
                before = self.tokens[index] if index >= 0 else self._history[-1]
                here = Cursor(tokens, at, length, FOLLOWED, choices, origin)
                self._push(chance, index, tokens[at], (here,), None, before, self._easy)
                return
            token = tokens[at]
            if (index, token) in self.children:
                return
            index = self._add(index, token, chance)
            at += 1
            length += 1
            chance *= goes_on[LENGTH_STEP[length if length < 32 else 32]]

    def _choose(self, index: int, chance: float, run: Cursor, at: int, length: int) -> float:
        """Put what the source says plainly beside what a rule says; return the rule's chance."""
        choice = run.choices[at]
        token = self._decide(index, run.tokens[at], choice)
        if token is not None and choice.plain is not None and not self._single:
            plain = Cursor(self._source, choice.plain, length, FOLLOWED)
            before = self.tokens[index] if index >= 0 else self._history[-1]
            otherwise = chance * (1.0 - choice.chance) * ELSEWHERE
            self._push(otherwise, index, token, (plain,), None, before, self._easy)
        return chance * choice.chance


def _longest(node: Node, history: Sequence[int]) -> Cursor | None:
    """Return the run to follow behind a drafted token, its index behind the token."""
    best: Cursor | None = None
    for cursor in node.cursors:
        longer = best is None or cursor.run + 1 > best.run
        if longer or (
            cursor.choices and best is not None and not best.choices and cursor.run + 1 >= best.run
        ):
            best = cursor._replace(index=cursor.index + 1, run=cursor.run + 1)
    if node.match is not None:
        place, length = node.match
        if length + 1 > (best.run if best else 0) + ADVANTAGE:
            return Cursor(history, place + 1, length + 1, -1, NO_CHOICES, "ngram")
    return best
