"""Replays one edit: the reference text plays the target.

A drafted token is accepted when it is the reference's next one; of a tree, the longest path
that the reference follows. Every pass emits one token more than it accepts.

Each pass has one cause, why it did not emit more:
- `first pass`: the first one;
- `window full`: every row of the main chain was accepted, and it had as many as it could;
- `edit site`: some drafted tokens were accepted, or what refused all of them stands within
  `NEAR` tokens of one that had been accepted;
- `new text`: nothing was accepted, and nothing just before it either.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.replay.items import Item
from drafters.core import MODEL, Draft, Drafter

NEAR = 2

FIRST, FULL, EDIT, NEW = "first pass", "window full", "edit site", "new text"
CAUSES = (FIRST, FULL, EDIT, NEW)


class Result(NamedTuple):
    """What became of one edit.

    Attributes:
        tokens: of the reference.
        passes: that it took.
        drafted: rows drafted, all nodes of trees counted.
        drafted_by_origin, accepted_by_origin: tokens; side branches are `branch`.
        causes: passes by cause.
        proposal_seconds: of each proposal.
        begin_seconds: of preparing, for `context_tokens` tokens.
    """

    item: Item
    tokens: int
    passes: int
    drafted: int
    drafted_by_origin: Counter[str]
    accepted_by_origin: Counter[str]
    causes: Counter[str]
    proposal_seconds: list[float]
    begin_seconds: float
    context_tokens: int

    @property
    def rate(self) -> float:
        """Tokens per pass."""
        return self.tokens / self.passes


def replay(drafter: Drafter, item: Item, window: int) -> Result:
    """Replay an edit with at most `window` drafted rows a pass.

    Raises:
        AssertionError: the drafter proposed more than it was asked for.
    """
    reference = item.reference
    drafted, accepted_by = Counter[str](), Counter[str]()
    causes: Counter[str] = Counter()
    seconds: list[float] = []
    started = time.perf_counter()
    drafter.begin(item.context)
    begin_seconds = time.perf_counter() - started
    start = passes = rows = 0
    since = NEAR + 1  # tokens since one was accepted
    while start < len(reference):
        began = time.perf_counter()
        draft = drafter.propose(window)
        seconds.append(time.perf_counter() - began)
        assert len(draft.tokens) <= window, f"{draft.origin} proposed {len(draft.tokens)} tokens"
        path = accepted_path(draft, reference, start)
        main = _main_length(draft)
        causes[_cause(passes, len(path), main, window, since)] += 1
        since = 1 if path else since + 1
        passes += 1
        rows += len(draft.tokens)
        for index in range(len(draft.tokens)):
            drafted[_origin(draft, index, main)] += 1
        for index in path:
            accepted_by[_origin(draft, index, main)] += 1
        end = start + len(path)
        drafter.observe(reference[start:end], reference[end])
        start = end + 1
    context = len(item.context.prompt) + len(item.context.source)
    return Result(
        item, len(reference), passes, rows, drafted, accepted_by, causes, seconds,
        begin_seconds, context,
    )  # fmt: skip


def accepted_path(draft: Draft, reference: Sequence[int], start: int) -> list[int]:
    """Return the indices of the drafted tokens that the reference follows from `start` on.

    The reference's last token, the end, is never drafted: a pass always emits one more.
    """
    parents = draft.parents or range(-1, len(draft.tokens) - 1)
    children: dict[tuple[int, int], int] = {}
    for index, (parent, token) in enumerate(zip(parents, draft.tokens, strict=True)):
        children.setdefault((parent, token), index)
    path: list[int] = []
    node = -1
    while start + len(path) < len(reference) - 1:
        found = children.get((node, reference[start + len(path)]))
        if found is None:
            break
        node = found
        path.append(node)
    return path


def _origin(draft: Draft, index: int, main: int) -> str:
    if draft.origins and draft.origins[index] == MODEL:
        return MODEL
    return draft.origin if index < main else "branch"


def _main_length(draft: Draft) -> int:
    parents = draft.parents or range(-1, len(draft.tokens) - 1)
    return next((i for i, parent in enumerate(parents) if parent != i - 1), len(draft.tokens))


def _cause(passes: int, accepted: int, main: int, window: int, since: int) -> str:
    if not passes:
        return FIRST
    if accepted and accepted == main and main == window:
        return FULL
    return EDIT if accepted or since <= NEAR else NEW
