"""How much of a draft to verify: the window with the most expected tokens a second.

A pass of 1 + n rows emits one token and every drafted one up to the first refusal. With
c_i the chance that the text goes through drafted token i (engine/chances.py) that is
1 + c_1 + c_2 + ... tokens; divided by what such a pass costs here (engine/cost.py) it is a
rate, and the best is looked for among all windows (the rule of Leviathan et al. 2023,
section 3.3, with measured costs and learnt chances instead of one constant). Of a token
tree the likeliest n tokens are the best n: no token is likelier than the one before it.

Zero regret: where no draft of a kind pays, none is verified, except a short probe that
comes less and less often while it finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from drafters.core import Draft
from engine.chances import Acceptance, Kind, kind_of
from engine.cost import CostModel
from engine.tree import begins_branch, chain_length

LONGEST_REST = 64
"""Passes between two probes of a kind of draft that has stopped paying, at most."""


class WindowPolicy:
    """Chooses what to verify in each pass of one answer.

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

    def choose(self, draft: Draft, context: int) -> list[int]:
        """Return the indices of the draft's tokens to verify over `context` tokens.

        They rise, and with each is the one that it follows.
        """
        if not draft.tokens:
            return []
        chances = self._acceptance.chances(draft)
        staircase = self._cost.staircase(context, len(chances) + 1)
        chosen = best_nodes(draft.parents, chances, staircase, self._cost.branch)
        if chosen:
            return chosen
        rest = self._rests.setdefault(kind_of(draft), Rest())
        return [0] if rest.is_over() else []

    def observe(
        self,
        draft: Draft,
        verified: Sequence[int],
        path: Sequence[int],
        next_token: int,
        context: int,
        seconds: float,
    ) -> None:
        """Learn from one pass: what was verified and accepted of a draft, and its time."""
        branches = branch_count(draft.parents, verified)
        self._cost.observe(len(verified) + 1, context, seconds, branches)
        self._acceptance.observe(draft, verified, path, next_token)
        rest = self._rests.get(kind_of(draft))
        if rest is not None and verified:
            rest.observe(bool(path))


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


def best_nodes(
    parents: Sequence[int],
    chances: Sequence[float],
    staircase: Sequence[float],
    branch: float = 0.0,
) -> list[int]:
    """Return the indices of the tokens with the most expected tokens a second, rising.

    Args:
        parents: of a draft; empty for a chain.
        chances: that the text goes through each token.
        staircase: seconds of passes of 1, 2, ... rows, one more than `chances`.
        branch: what each side branch adds to a pass, as a share of its seconds.
    """
    order = sorted(range(len(chances)), key=lambda node: -chances[node])
    chosen, rate = _best_beginning(order, parents, chances, staircase, branch)
    if branch and parents:
        # The likeliest are not the best where those on side branches cost more.
        chain, chain_rate = _best_beginning(
            range(chain_length(parents)), parents, chances, staircase, branch
        )
        if chain_rate >= rate:
            return chain
    return sorted(chosen)


def branch_count(parents: Sequence[int], nodes: Sequence[int]) -> int:
    """Return how many side branches some of the drafted tokens make up."""
    return sum(begins_branch(parents, node) for node in nodes)


def _best_beginning(
    order: Sequence[int],
    parents: Sequence[int],
    chances: Sequence[float],
    staircase: Sequence[float],
    branch: float,
) -> tuple[list[int], float]:
    """Return the beginning of `order` with the highest rate, and that."""
    best, best_rate = 0, 1.0 / staircase[0]
    tokens, share = 1.0, 1.0
    for count, node in enumerate(order, 1):
        tokens += chances[node]
        share += branch * begins_branch(parents, node)
        rate = tokens / (staircase[count] * share)
        if rate > best_rate:
            best, best_rate = count, rate
    return list(order[:best]), best_rate
