"""The drafters put together: what the engine and the replay use.

Each pass: every reason to expect a token is gathered (drafters/cursors.py and
drafters/forecast.py), weighed by odds that are learnt as the answer is written
(drafters/odds.py), and the rows of the pass are filled with the likeliest tokens
(drafters/tree.py). Where the place in the source is certain it is simply copied.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from drafters.alignment import Alignment
from drafters.cascade import CascadeDrafter
from drafters.core import NO_DRAFT, Draft, DraftContext, Drafter
from drafters.cursors import (
    Cursor,
    anchor_feature,
    changed_feature,
    contradicted_feature,
    hypothesis_feature,
    source_cursors,
    workspace_cursors,
    workspace_feature,
)
from drafters.forecast import Forecast, Forecaster
from drafters.history import MAX_MATCH, History
from drafters.lexicon import Lexicon, word_starts
from drafters.memory import Memory
from drafters.model import DraftModel
from drafters.ngram import CANDIDATES, matches
from drafters.odds import WORKSPACE, Odds, since_step
from drafters.projection import Projector
from drafters.seeds import seeds
from drafters.text import Text
from drafters.tree import Tree
from drafters.weights import WEIGHTS
from drafters.workspace import WorkspaceLookup

ONWARD = 6
"""Runs followed behind a drafted token."""

DEEP_MATCHES = 8
"""Occurrences of the last pair looked at behind a drafted token."""

DECIDED = 0.5
"""Chance of a rule from which nothing but it and the plain copy is drafted."""

COPIED = 16
"""Matches in a row from which the copy is not doubted at all."""


def standard(trees: bool = False, model: DraftModel | None = None) -> Drafter:
    """Return the drafter for rewriting.

    Args:
        trees: whether the target verifies trees; else every draft is a chain.
        model: a small model, asked where the others are in doubt and it pays.
    """
    drafter = StandardDrafter(trees)
    return drafter if model is None else CascadeDrafter(drafter, model, trees)


class StandardDrafter:
    """All drafters that need no model, mixed by learnt odds.

    Args:
        trees: whether drafts may branch.
        weights: of the odds, at the beginning of an answer.
    """

    def __init__(self, trees: bool = True, weights: Sequence[float] = WEIGHTS) -> None:
        self._trees = trees
        self._weights = weights
        self.begin(DraftContext(()))

    def begin(self, context: DraftContext) -> None:
        """Index the prompt, the source and earlier rewrites."""
        lexicon = self._lexicon = Lexicon(context.pieces)
        self._history = History(lexicon.kind if context.pieces else None)
        for tokens in (*reversed(context.earlier), context.prompt):
            self._history.extend(tokens)
        source = list(context.source)
        self._alignment = Alignment(source)
        self._line_starts = [
            place
            for place in range(len(source))
            if place == 0 or lexicon.ends_line(source[place - 1])
        ]
        self._text: Text | None = None
        self._projector: Projector | None = None
        self._memory = Memory(b"")
        named: frozenset[int] = frozenset()
        tokenize = context.tokenize
        if tokenize is not None and context.pieces is not None:
            text = self._text = Text(lexicon.piece, tokenize)
            named = word_starts(context.instruction, tokenize)
            raw = b"".join(map(lexicon.piece, source))
            pairs = seeds(context.instruction, raw.decode("utf-8", "replace"))
            self._memory = Memory(raw, [(old.encode(), new.encode()) for old, new in pairs])
            self._projector = Projector(source, text, self._memory)
        self.odds = Odds(self._weights)
        index = context.workspace
        self._workspace = WorkspaceLookup(index) if index is not None else None
        self._forecaster = Forecaster(
            self._history,
            self._alignment,
            lexicon,
            self.odds,
            named,
            len(self._history.tokens),
            self._workspace,
        )
        self._tree: Tree | None = None

    def propose(self, limit: int) -> Draft:
        """Return a tree, or a chain, of at most `limit` tokens."""
        history = self._history.tokens
        if limit < 1 or not history:
            self._tree = None
            return NO_DRAFT
        last = history[-1]
        cursors = source_cursors(
            self._alignment,
            self._line_starts,
            self._text,
            self._projector,
            self._lexicon.ends_line(last),
            limit,
        )
        tree = self._tree = Tree(
            limit, history, self._alignment.source, self._look, not self._trees
        )
        first = cursors[0]
        copy = next((cursor for cursor in cursors if cursor.choices), first)
        rule = copy.choices.get(0)
        known = first.run >= COPIED or (rule is not None and rule.chance >= DECIDED)
        if self._alignment.is_firm and known and first.index < len(first.tokens):
            tree.follow_from_root(copy)
            return _draft(tree, cursors, tree.chances[0])
        if self._workspace is not None:
            cursors += workspace_cursors(self._workspace, history)
        before = history[-2] if len(history) > 1 else -1
        since = self._alignment.unmatched
        forecast = self._forecaster.look(
            cursors, matches(self._history, CANDIDATES), last, before, since, True
        )
        tree.grow(forecast, cursors, last)
        if not tree.tokens:
            return NO_DRAFT
        draft = _draft(tree, cursors, forecast.outlook.chances.get(tree.tokens[0], 0.0))
        reasons = forecast.outlook.features.get(draft.tokens[0], ())
        if all(reason in WORKSPACE for reason in reasons):
            return draft._replace(origin="workspace", source_index=None)
        return draft

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Learn from what the target emitted."""
        emitted = (*accepted, next_token)
        if self._tree is not None:
            self._learn(self._tree, emitted)
            self._tree = None
        for token in emitted:
            self._advance(token)

    def _look(
        self, cursors: Sequence[Cursor], match: tuple[int, int] | None, token: int, before: int
    ) -> Forecast:
        """Forecast behind a drafted token."""
        line = int(self._lexicon.ends_line(token))
        onward = []
        cursors = cursors[:ONWARD]
        rule = next((c.choices[c.index + 1] for c in cursors if c.index + 1 in c.choices), None)
        for cursor in cursors:
            index, run = cursor.index + 1, min(cursor.run + 1, MAX_MATCH)
            if cursor.origin == "workspace":
                feature = workspace_feature(run, 0)
            elif cursor.choices:
                feature = changed_feature(cursor.choices.get(index))
            elif rule is not None:
                feature = contradicted_feature(rule)
            else:
                feature = hypothesis_feature(4, run, line)
            onward.append(cursor._replace(index=index, run=run, feature=feature))
        # The workspace's files say nothing about where in the source to go on.
        in_source = any(cursor.origin != "workspace" for cursor in onward)
        since = 0 if in_source else 3
        if not in_source:
            source, here = self._alignment.source, self._alignment.divergence
            step = since_step(self._alignment.unmatched)
            onward += [
                Cursor(source, here, 0, anchor_feature(10, step, line)),
                Cursor(source, here + 1, 0, anchor_feature(11, step, line)),
            ]
        found = [(place, 2) for place in self._history.after_pair(before, token)[-DEEP_MATCHES:]]
        if match is not None:
            found.append((match[0] + 1, min(match[1] + 1, MAX_MATCH)))
        found.reverse()
        return self._forecaster.look(onward, found, token, before, since, False)

    def _learn(self, tree: Tree, emitted: Sequence[int]) -> None:
        index = -1
        for token in emitted:
            forecast = tree.forecasts.get(index)
            if forecast is not None:
                self.odds.learn(forecast.outlook, token)
            decision = tree.decisions.get(index)
            if decision is not None:
                if token == decision.taken:
                    decision.rule.hits += 1.0
                elif decision.plain is None or token == decision.plain:
                    decision.rule.misses += 1.0
            index = tree.children.get((index, token), -2)
            if index < -1:
                return

    def _advance(self, token: int) -> None:
        self._history.append(token)
        edit = self._alignment.advance(token)
        text, projector = self._text, self._projector
        if text is None or projector is None:
            return
        ended = text.append(token)
        if edit is not None:
            written = bytes(text.written[text.ends[edit.emitted] : text.ends[edit.emitted_end]])
            self._memory.learn(projector.offsets[edit.start], projector.offsets[edit.end], written)
        if ended:
            place, _, run = self._alignment.beam[0]
            if run >= 2:
                line = bisect_right(self._line_starts, place - 1) - 1
                start = projector.offsets[self._line_starts[line]]
                projector.note_line(text.current_line, start)
            text.start_line()


def _draft(tree: Tree, cursors: Sequence[Cursor], confidence: float) -> Draft:
    """Order the tree so that its main chain comes first, and say where it comes from."""
    first_child: dict[int, int] = {}
    for index, parent in enumerate(tree.parents):
        first_child.setdefault(parent, index)
    order: list[int] = []
    index = -1
    while index in first_child:
        index = first_child[index]
        order.append(index)
    length = len(order)
    origin, source_index = _origin(tree.tokens[order[0]], cursors)
    if length == len(tree.tokens):
        return Draft(tree.tokens, origin, confidence, source_index, (), tree.chances)
    main = set(order)
    order += [index for index in range(len(tree.tokens)) if index not in main]
    renamed = {old: new for new, old in enumerate(order)}
    renamed[-1] = -1
    return Draft(
        [tree.tokens[old] for old in order],
        origin,
        confidence,
        source_index,
        [renamed[tree.parents[old]] for old in order],
        [tree.chances[old] for old in order],
    )


def _origin(token: int, cursors: Sequence[Cursor]) -> tuple[str, int | None]:
    for cursor in cursors:
        if cursor.index < len(cursor.tokens) and cursor.tokens[cursor.index] == token:
            if cursor.origin in ("memory", "workspace"):
                continue
            first = cursors[0]
            copies = cursor.tokens is first.tokens
            return ("source", cursor.index) if copies else ("memory", None)
    if any(
        cursor.origin == "memory"
        and cursor.index < len(cursor.tokens)
        and cursor.tokens[cursor.index] == token
        for cursor in cursors
    ):
        return "memory", None
    return "ngram", None
