"""Gathers the candidates for the next token at one place, with all reasons for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from drafters.alignment import FIRM, Alignment
from drafters.cursors import Cursor
from drafters.history import History, share_step
from drafters.lexicon import Lexicon
from drafters.odds import (
    AFTER_KIND,
    AFTER_ONE,
    AFTER_PAIR,
    AFTER_SHAPE,
    AHEAD,
    CONTRADICTED,
    LENGTH_STEP,
    MATCHED,
    NAMED,
    NONE,
    RECENT,
    SEEN_STEP,
    WORKSPACE_AFTER,
    Odds,
    Outlook,
)
from drafters.workspace import WorkspaceLookup

MATCHES = 6
"""Candidates told apart by the length of the match before them."""

SEEN = 32
"""Last tokens that count as recent."""

REACH = 24
"""Source tokens behind the divergence that count as near."""

DEEP = 6
"""Followers of one sort looked at inside a draft, the commonest; at its root all."""

WORKSPACE_MOST = 12
"""Followers in the workspace looked at, at the root."""

RECENT_STEP = tuple(RECENT + sum(ago >= step for step in (2, 4, 8, 16)) for ago in range(SEEN))
AHEAD_STEP = tuple(
    AHEAD + (min(ahead, 4) if ahead < 6 else sum(ahead >= step for step in (9, 13)) + 5)
    for ahead in range(REACH)
)


class Forecast(NamedTuple):
    """What may come next, and how each candidate would go on.

    Attributes:
        outlook: the chances.
        cursors: for each candidate the runs that continue behind it.
        match: for each candidate the place in the history of its longest match, and length.
    """

    outlook: Outlook
    cursors: dict[int, list[Cursor]]
    match: dict[int, tuple[int, int]]


class Forecaster:
    """Knows everything that speaks for a token.

    Args:
        history: all tokens so far.
        alignment: the place in the source.
        lexicon: facts about tokens.
        odds: weighs the reasons.
        named: first tokens of the instruction's words.
        prompt_end: length of the history when the answer began.
        workspace: what the workspace's files say, or None.
    """

    def __init__(
        self,
        history: History,
        alignment: Alignment,
        lexicon: Lexicon,
        odds: Odds,
        named: frozenset[int],
        prompt_end: int,
        workspace: WorkspaceLookup | None = None,
    ) -> None:
        self._history = history
        self._alignment = alignment
        self._lexicon = lexicon
        self._odds = odds
        self._named = named
        self._prompt_end = prompt_end
        self._workspace = workspace
        self._recent: dict[int, int] = {}

    def look(
        self,
        cursors: Sequence[Cursor],
        matches: Sequence[tuple[int, int]],
        last: int,
        before: int,
        since: int,
        at_root: bool,
    ) -> Forecast:
        """Return what may follow the tokens `before`, `last`.

        Args:
            cursors: runs that may go on here.
            matches: (place, length) in the history of what may go on here.
            last: the last token, drafted ones included.
            before: the token before it.
            since: tokens since the divergence, for "none of them".
            at_root: whether no drafted token is among them; then more is looked at.
        """
        features: dict[int, list[int]] = {}
        following = _by_token(cursors, features)
        found = self._matched(matches, features)
        history = self._history
        for family, shares in (
            (AFTER_PAIR, history.shares_after_pair(before, last)),
            (AFTER_SHAPE, history.shares_after_shape(before, last)),
            (AFTER_ONE, history.shares_after(last)),
            (AFTER_KIND, history.commonest_after_kind(last)),
        ):
            if not at_root:
                shares = shares[:DEEP]
            for token, step in shares:
                own = features.get(token)
                if own is None:
                    features[token] = [family + step]
                else:
                    own.append(family + step)
        if self._workspace is not None:
            _in_workspace(self._workspace, before, last, at_root, features)
        self._nearby(features, at_root)
        if self._named:
            for token in self._named & features.keys():
                features[token].append(NAMED)
        for cursor in cursors:
            if cursor.index in cursor.choices and cursor.run >= FIRM:
                # Where a rule decides, all the rest speaks for what stood there before.
                _let_rule_decide(cursor, cursors, features)
        none = NONE + min(since, 3) * 2 + self._lexicon.ends_line(last)
        return Forecast(self._odds.outlook(features, none, at_root), following, found)

    def _matched(
        self, matches: Sequence[tuple[int, int]], features: dict[int, list[int]]
    ) -> dict[int, tuple[int, int]]:
        tokens = self._history.tokens
        end = len(tokens)
        best: dict[int, tuple[int, int]] = {}
        for place, length in matches:
            if place < end:
                token = tokens[place]
                known = best.get(token)
                if known is None or length > known[1]:
                    best[token] = (place, length)
        if not best:
            return best
        ranked = sorted(best.items(), key=lambda item: -item[1][1])[:MATCHES]
        for rank, (token, (place, length)) in enumerate(ranked):
            step = LENGTH_STEP[min(length, 32)] * 3 + min(rank, 2)
            in_answer = place >= self._prompt_end
            features.setdefault(token, []).append(MATCHED + step * 2 + in_answer)
        return best

    def _nearby(self, features: dict[int, list[int]], at_root: bool) -> None:
        """Add what was seen last and, at the root, what the source says near the divergence."""
        if at_root:
            # Nearest last, so that it stays where a token stands twice.
            tokens = self._history.tokens[-SEEN:]
            steps = RECENT_STEP[len(tokens) - 1 :: -1]
            self._recent = dict(zip(tokens, steps, strict=True))
            here = self._alignment.divergence
            ahead = self._alignment.source[here : here + REACH]
            near = (
                dict(zip(reversed(ahead), AHEAD_STEP[len(ahead) - 1 :: -1], strict=True))
                if (ahead)
                else {}
            )
            for token, step in near.items():
                features.setdefault(token, []).append(step)
            for token, step in self._recent.items():
                features.setdefault(token, []).append(step)
            return
        recent = self._recent
        for token in recent.keys() & features.keys():
            features[token].append(recent[token])


def _in_workspace(
    lookup: WorkspaceLookup, before: int, last: int, at_root: bool, features: dict[int, list[int]]
) -> None:
    """Add what follows the last pair, and the last token, in the workspace's files."""
    most = WORKSPACE_MOST if at_root else DEEP
    for order, followers in enumerate((lookup.followers(before, last), lookup.followers(last))):
        for follower in followers[:most]:
            step = (order * 3 + SEEN_STEP[follower.places]) * 8 + share_step(follower.share)
            features.setdefault(follower.token, []).append(WORKSPACE_AFTER + step)


def _let_rule_decide(
    changed: Cursor, cursors: Sequence[Cursor], features: dict[int, list[int]]
) -> None:
    if changed.index >= len(changed.tokens):
        return
    for cursor in cursors:
        if cursor.index < len(cursor.tokens) and CONTRADICTED <= cursor.feature < CONTRADICTED + 8:
            features[cursor.tokens[cursor.index]] = [cursor.feature]
    features[changed.tokens[changed.index]] = [changed.feature]


def _by_token(cursors: Sequence[Cursor], features: dict[int, list[int]]) -> dict[int, list[Cursor]]:
    """Sort cursors by the token that each expects; those with choices first."""
    following: dict[int, list[Cursor]] = {}
    for cursor in cursors:
        if cursor.index >= len(cursor.tokens):
            continue
        token = cursor.tokens[cursor.index]
        own = features.get(token)
        if own is None:
            features[token] = [cursor.feature]
            following[token] = [cursor]
            continue
        if cursor.feature not in own:
            own.append(cursor.feature)
        following[token].insert(0 if cursor.choices else len(following[token]), cursor)
    return following
