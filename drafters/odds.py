"""How likely each candidate is to be the next token: a mixture of experts, learnt online.

Every reason to expect a token (the source goes on with it, it followed the same pair, ...)
is a feature with a weight; a candidate's score is the sum of its features' weights, and its
chance the softmax over all candidates and "none of them". The weights begin as fitted on
development edits (drafters/weights.py) and go on learning by gradient steps, as the mixing
of context-mixing compressors does (Mahoney 2005).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import NamedTuple

RATE = 0.02
"""Step of learning."""

NEGLIGIBLE = 0.003
"""Smaller errors are not learnt from."""


class Layout:
    """Where each family of features begins among the weights."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, count: int) -> int:
        """Return the first of `count` new features."""
        first = self.size
        self.size += count
        return first


_layout = Layout()
HYPOTHESIS = _layout.take(5 * 7 * 2)
"""The source goes on so: rank of the hypothesis, run of matches, at a line's start."""
ANCHOR = _layout.take(12 * 4 * 2)
"""A place near the divergence: which one, tokens since then, at a line's start."""
MATCHED = _layout.take(9 * 3 * 2)
"""Longest match before it: length, rank among the lengths, in the answer."""
AFTER_PAIR = _layout.take(8)
"""Its share among the followers of the last pair."""
AFTER_ONE = _layout.take(8)
"""Its share among the followers of the last token."""
AFTER_KIND = _layout.take(9)
"""Its share among the followers of tokens of the last one's kind."""
RECENT = _layout.take(5)
"""How long ago it was seen last."""
AHEAD = _layout.take(8)
"""How far behind the divergence it stands in the source."""
NAMED = _layout.take(1)
"""It begins a word of the instruction."""
INSIDE = _layout.take(4 * 4 * 2)
"""The source goes on so from inside a token: where, tokens since the divergence, ..."""
CHANGED = _layout.take(9)
"""The source, as the memory changes it, goes on so: chance of the rule; last: no choice."""
NONE = _layout.take(4 * 2)
"""None of them: tokens since the divergence, at a line's start."""
CONTRADICTED = _layout.take(8)
"""The source goes on so, but the memory changes it here: chance of the rule."""
AFTER_SHAPE = _layout.take(8)
"""Its share behind the token before the last and any token of the last one's kind."""
WORKSPACE_RUN = _layout.take(9 * 2)
"""The workspace goes on so: length of the match, whether it is the longest."""
WORKSPACE_AFTER = _layout.take(2 * 3 * 8)
"""Its share behind the last pair, or the last token, in the workspace: how often that was seen."""
SIZE = _layout.size
WORKSPACE = range(WORKSPACE_RUN, SIZE)
"""All features of the workspace."""

LENGTH_STEP = tuple(
    sum(length >= step for step in (3, 4, 5, 7, 11, 14, 20, 32)) for length in range(33)
)
"""Bucket of a match's length."""

RUN_STEP = tuple(sum(run >= step for step in (1, 2, 3, 4, 8, 16)) for run in range(33))
"""Bucket of a run of matches."""

SEEN_STEP = tuple(sum(seen >= step for step in (2, 8)) for seen in range(33))
"""Bucket of how often a context was seen in the workspace, of three."""

SINCE_STEP = (0, 1, 2, 2, 2)
"""Bucket of tokens since the divergence; more than these is the last bucket, 3."""


def since_step(tokens: int) -> int:
    """Return the bucket of the tokens since the divergence, of four."""
    return SINCE_STEP[tokens] if tokens < len(SINCE_STEP) else 3


class Outlook(NamedTuple):
    """What may come next at one place.

    Attributes:
        features: of each candidate.
        chances: of each candidate; with `none_chance` they sum to 1.
        none: the feature of "none of them".
        none_chance: its chance.
        weights: those that were used; learning changes them.
    """

    features: dict[int, list[int]]
    chances: dict[int, float]
    none: int
    none_chance: float
    weights: list[float]


class Odds:
    """Turns features into chances, and learns.

    Args:
        weights: of all features at the root of a draft, then inside one; copied.
        rate: step of learning; 0 learns nothing.
    """

    def __init__(self, weights: Sequence[float], rate: float | None = None) -> None:
        self.at_root = list(weights[:SIZE])
        self.inside = list(weights[SIZE : 2 * SIZE])
        self._rate = RATE if rate is None else rate

    def outlook(self, features: dict[int, list[int]], none: int, at_root: bool) -> Outlook:
        """Return the chances of all candidates."""
        weights = self.at_root if at_root else self.inside
        chances: dict[int, float] = {}
        total = none_score = exp(weights[none])
        for token, own in features.items():
            score = 0.0
            for feature in own:
                score += weights[feature]
            chances[token] = value = exp(score if score < 30.0 else 30.0)
            total += value
        for token in chances:
            chances[token] /= total
        return Outlook(features, chances, none, none_score / total, weights)

    def learn(self, outlook: Outlook, token: int) -> None:
        """Learn which token came."""
        weights, rate = outlook.weights, self._rate
        for candidate, chance in outlook.chances.items():
            error = (candidate == token) - chance
            if error > NEGLIGIBLE or error < -NEGLIGIBLE:
                step = rate * error
                for feature in outlook.features[candidate]:
                    weights[feature] += step
        came = token in outlook.chances
        weights[outlook.none] += rate * ((not came) - outlook.none_chance)
