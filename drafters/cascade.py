"""Copies first, and a small model where the copy is in doubt, in one draft.

The small model reads over what the copier drafted, in one pass of its own. Where it agrees,
the copy is surer; where it says something else, that becomes a branch (or, without trees,
the way on where it is likelier), and the model goes on behind it, guided again by whatever
was drafted there. It is asked only while the tokens that this is expected to gain are worth
its time: a pass of n tokens in T seconds must come out at more tokens a second with the
model's seconds than without (the rule of Leviathan et al. 2023, with costs measured and
chances learnt).
"""

from __future__ import annotations

from collections.abc import Sequence

from drafters.core import Draft, DraftContext, Drafter
from drafters.gains import Costs
from drafters.growth import Growth
from drafters.model import DraftModel

MOST_ASKS = 8
"""Passes of the small model for one draft, at most."""

MOST_ROWS = 48
"""Rows of one such pass, at most."""

EASY = 0.15
"""Worth of the last tokens of a sure copy beside new text (as in drafters/tree.py)."""

LEAST_GAIN = 0.02
"""Expected tokens below which it is not asked, even where it costs nothing."""


class CascadeDrafter:
    """Adds a small model's tokens to a copier's drafts.

    Args:
        copier: drafts without a model.
        model: says what comes next; see `DraftModel`.
        trees: whether drafts may branch.
    """

    def __init__(self, copier: Drafter, model: DraftModel, trees: bool = False) -> None:
        self._copier = copier
        self._model = model
        self._trees = trees
        self._tokens: list[int] = []
        self._growth: Growth | None = None
        self._saved = 0.0

    def begin(self, context: DraftContext) -> None:
        """Begin the copier; the model reads the prompt only when it pays."""
        self._copier.begin(context)
        self._tokens = list(context.prompt)
        self._growth = None
        self._saved = 0.0

    def propose(self, limit: int) -> Draft:
        """Return the copier's draft, with the model's tokens where asking it pays."""
        draft = self._copier.propose(limit)
        self._growth = None
        if limit < 1 or not self._tokens:
            return draft
        growth = Growth(draft)
        costs = self._model.costs(self._tokens)
        spent, asked = 0.0, 0
        while asked < MOST_ASKS:
            path, gain, price = self._best(growth, costs, spent, limit)
            if not path or (asked == 0 and not self._is_worth_reading(growth, costs, gain, price)):
                break
            heard = self._ask(growth, path)
            if not heard:
                break
            spent += price + (costs.unread if asked == 0 else 0.0)
            asked += 1
        if not asked:
            self._model.gains.forget()
            return draft
        self._growth = growth
        return growth.draft(limit, self._trees)

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Tell the copier, and learn what the model gained."""
        emitted = (*accepted, next_token)
        self._copier.observe(accepted, next_token)
        self._tokens.extend(emitted)
        growth, self._growth = self._growth, None
        if growth is None:
            return
        node = -1
        for token in emitted:
            child = growth.child(node, token)
            if node in growth.said and (child is None or child >= growth.copied):
                self._model.gains.observe(growth.said[node] == token)
            if child is None:
                return
            node = child

    def _best(
        self, growth: Growth, costs: Costs, spent: float, limit: int
    ) -> tuple[list[int], float, float]:
        """Return where to ask next, its expected gain in tokens, and its price in seconds.

        Where is a token that the model has not yet read over, behind one that it has, and
        the likeliest way on behind it; no tokens: it does not pay.
        """
        through = growth.through()
        likeliest = sorted(through, reverse=True)[:limit]
        # What a new token takes the place of: a copy's end, which the next pass brings anyway.
        displaced = EASY * likeliest[-1] if len(likeliest) == limit else 0.0
        rate = (1.0 + sum(likeliest)) / (costs.target + spent)
        chance = self._model.gains.chance
        best: tuple[list[int], float, float] = ([], 0.0, 0.0)
        best_net = 0.0
        for start in _frontier(growth, self._trees):
            gain = 0.0
            room = min(MOST_ROWS, limit - len(growth.path(start)))
            way = [start, *growth.main_below(start, room - 1)] if room > 0 else []
            for rows, node in enumerate(way, 1):
                depth_chance = through[node] if node >= 0 else 1.0
                gain += max(chance * depth_chance * growth.uncovered(node) - displaced, 0.0)
                price = costs.model + costs.row * (rows - 1)
                net = gain - rate * price
                if gain >= LEAST_GAIN and net > best_net:
                    best, best_net = (way[:rows], gain, price), net
        return best

    def _is_worth_reading(self, growth: Growth, costs: Costs, gain: float, price: float) -> bool:
        """Return whether the first question may be asked, with all that must be read for it.

        The prompt is read when what asking would have saved so far is what reading costs:
        then no answer loses more than it might have gained (the rule for renting or buying).
        """
        if costs.unread <= 0.0:
            return True
        rate = (1.0 + sum(growth.through())) / costs.target
        self._saved += gain / rate - price
        if self._saved < costs.unread:
            return False
        self._saved = 0.0
        return True

    def _ask(self, growth: Growth, way: Sequence[int]) -> bool:
        before = growth.path(way[0])
        tokens = [*self._tokens, *(growth.tokens[node] for node in before)]
        tokens += [growth.tokens[node] for node in way[1:]]
        said = self._model.say(tokens, len(way))
        for node, (token, probability) in zip(way, said, strict=False):
            growth.hear(node, token, probability)
        return bool(said)


def _frontier(growth: Growth, trees: bool) -> list[int]:
    """Return where the model may be asked next: behind what it has been asked about."""
    if -1 not in growth.said:
        return [-1]
    if not trees:
        main = growth.main_below(-1, len(growth.tokens))
        return next(([node] for node in main if node not in growth.said), [])
    return [
        node
        for node, parent in enumerate(growth.parents)
        if parent in growth.said and node not in growth.said
    ]
