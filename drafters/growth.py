"""A draft that grows: a copier's tree, to which a small model's tokens are added.

Each token has its chance where it is asked for, behind its parent. Where the small model is
asked there are two opinions on the next token, and both chances are pooled: as a weighted
sum of log odds (logarithmic opinion pooling; Genest and Zidek 1986), with weights as fitted
on recorded answers of a 1.5B drafted by its 0.5B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from drafters.core import MODEL, NO_DRAFT, Draft

KNOWN = (0.0, 0.1, 1.1)
"""Bias, weight of the copier, weight of the small model, where both have the same token."""

OTHER = (0.4, 0.05, 0.9)
"""The same where the copier has not drafted the small model's token: then what the copier
says is the chance that none of its own is right."""

GUESSED = 0.9
"""Chance of a token after the first of a copier that says only how sure it is of that."""

LIMITS = (0.002, 0.998)


class Growth:
    """A draft with room for more tokens.

    Args:
        draft: the copier's; may be empty.

    Attributes:
        tokens, parents: as in `Draft`, in the order in which they were added.
        own: chance of each token behind its parent.
        origins: who drafted each.
        said: by the index of a token (-1: the last emitted one) what the small model says
            behind it.
        copied: how many first tokens are the copier's.
    """

    def __init__(self, draft: Draft) -> None:
        count = len(draft.tokens)
        self.tokens = list(draft.tokens)
        self.parents = list(draft.parents) or list(range(-1, count - 1))
        self.origins = list(draft.origins) or [draft.origin] * count
        self.own = _own(draft, self.parents)
        self.said: dict[int, int] = {}
        self.copied = count
        self._draft = draft
        self._children: dict[int, list[int]] = {}
        for index, parent in enumerate(self.parents):
            self._children.setdefault(parent, []).append(index)

    def children(self, node: int) -> Sequence[int]:
        """Return the tokens drafted behind one."""
        return self._children.get(node, ())

    def child(self, node: int, token: int) -> int | None:
        """Return where `token` is drafted behind `node`."""
        return next((c for c in self.children(node) if self.tokens[c] == token), None)

    def uncovered(self, node: int) -> float:
        """Return the chance that what follows a token is none of what is drafted there."""
        return max(1.0 - sum(self.own[child] for child in self.children(node)), 0.0)

    def through(self) -> list[float]:
        """Return for each token the chance that the text goes through it."""
        chances: list[float] = []
        for own, parent in zip(self.own, self.parents, strict=True):
            chances.append(own * (chances[parent] if parent >= 0 else 1.0))
        return chances

    def path(self, node: int) -> list[int]:
        """Return the indices from the first drafted token to `node`."""
        found = []
        while node >= 0:
            found.append(node)
            node = self.parents[node]
        return found[::-1]

    def main_below(self, node: int, most: int) -> list[int]:
        """Return the likeliest way on behind `node`, at most `most` tokens."""
        found: list[int] = []
        while len(found) < most and (children := self.children(node)):
            node = max(children, key=self.own.__getitem__)
            found.append(node)
        return found

    def hear(self, node: int, token: int, probability: float) -> None:
        """Pool what the small model says behind a token with the copier's chances."""
        self.said[node] = token
        known = self.child(node, token)
        bias, copier, model = KNOWN if known is not None else OTHER
        before = self.own[known] if known is not None else self.uncovered(node)
        chance = _chance(bias + copier * _odds(before) + model * _odds(probability))
        others = [child for child in self.children(node) if child != known]
        left = sum(self.own[child] for child in others)
        if left > 0.0:
            # What the copier said of its other tokens keeps its proportions.
            nobody = max(1.0 - left - (before if known is not None else 0.0), 0.0)
            scale = (1.0 - chance) / (left + nobody)
            for child in others:
                self.own[child] *= min(scale, 1.0)
        if known is None:
            known = len(self.tokens)
            self.tokens.append(token)
            self.parents.append(node)
            self.origins.append(MODEL)
            self.own.append(chance)
            self._children.setdefault(node, []).append(known)
        self.own[known] = chance

    def draft(self, limit: int, trees: bool) -> Draft:
        """Return the likeliest `limit` tokens, the main chain first; without `trees` only that."""
        if not self.tokens or limit < 1:
            return NO_DRAFT
        chances = self.through()
        # A stable sort: of equal chances the parent comes first.
        chosen = sorted(range(len(chances)), key=lambda node: -chances[node])[:limit]
        kept = set(chosen)
        main: list[int] = []
        node = -1
        while below := [child for child in self.children(node) if child in kept]:
            node = max(below, key=self.own.__getitem__)
            main.append(node)
        if not trees and len(main) < limit:
            main += self.main_below(main[-1], limit - len(main))
        order = list(main)
        if trees:
            order += sorted(kept.difference(main))
        place = {-1: -1} | {node: index for index, node in enumerate(order)}
        parents = [place[self.parents[node]] for node in order]
        first = order[0]
        same = bool(self._draft.tokens) and first == 0
        return Draft(
            [self.tokens[node] for node in order],
            self.origins[first],
            self.own[first],
            self._draft.source_index if same else None,
            () if parents == list(range(-1, len(order) - 1)) else parents,
            [chances[node] for node in order],
            [self.origins[node] for node in order],
        )


def _own(draft: Draft, parents: Sequence[int]) -> list[float]:
    if not draft.chances:
        return [draft.confidence if parent < 0 else GUESSED for parent in parents]
    return [
        chance / before if (before := draft.chances[parent] if parent >= 0 else 1.0) > 0 else 0.0
        for chance, parent in zip(draft.chances, parents, strict=True)
    ]


def _odds(chance: float) -> float:
    chance = min(max(chance, LIMITS[0]), LIMITS[1])
    return math.log(chance / (1.0 - chance))


def _chance(odds: float) -> float:
    return 1.0 / (1.0 + math.exp(-odds))
