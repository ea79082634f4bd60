"""The words of drafting: a draft, what a drafter is told, and what it must answer.

Only data and one protocol live here, so that every drafter can be read on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from drafters.workspace import WorkspaceIndex

NO_TOKENS: tuple[int, ...] = ()

MODEL = "model"
"""Origin of the tokens that a small model drafted."""


class Draft(NamedTuple):
    """Proposed tokens: a chain, or a tree whose main chain comes first.

    Attributes:
        tokens: the proposed token ids, at most as many as were asked for; empty
            when the drafter has nothing worth a try.
        origin: which drafter made it: `source`, `ngram`, `model`, ...
        confidence: the drafter's guess, from 0 to 1, that its first token is right.
        source_index: index in `DraftContext.source` of the first drafted token,
            where the draft is a verbatim copy of the source, else None.
        parents: for each token the index of the token that it follows, -1 for the last
            emitted one; always less than its own index. Empty means a plain chain.
        chances: for each token the drafter's guess, from 0 to 1, that the text goes
            through it and all before it; empty where there is only `confidence`.
        origins: for each token which drafter made it; empty where all are by `origin`. Of
            the main chain only tokens by `origin` belong to `source_index`.
    """

    tokens: Sequence[int]
    origin: str
    confidence: float = 0.0
    source_index: int | None = None
    parents: Sequence[int] = ()
    chances: Sequence[float] = ()
    origins: Sequence[str] = ()


NO_DRAFT = Draft(NO_TOKENS, "none")


def chain(draft: Draft) -> Draft:
    """Return the draft's main chain, for a target that verifies no trees."""
    length = 0
    for parent in draft.parents:
        if parent != length - 1:
            break
        length += 1
    else:
        return draft._replace(parents=()) if draft.parents else draft
    return draft._replace(
        tokens=draft.tokens[:length],
        parents=(),
        chances=draft.chances[:length],
        origins=draft.origins[:length],
    )


@dataclass(frozen=True, slots=True)
class DraftContext:
    """What a drafter knows when an answer begins.

    Attributes:
        prompt: all token ids of the prompt, the opened answer fence included.
        source: token ids of the text being rewritten, as the answer would hold
            them; empty when the request names no source.
        instruction: what the user asked for, in words.
        pieces: returns the bytes that a token id stands for. Without it, and without
            `tokenize`, nothing is drafted from characters.
        tokenize: returns the token ids of a text, as the model would write it.
        earlier: token ids of earlier rewrites in the same editor window, newest first.
        workspace: index of the open workspace's files, by the same tokenizer, or None.
    """

    prompt: Sequence[int]
    source: Sequence[int] = NO_TOKENS
    instruction: str = ""
    pieces: Callable[[int], bytes] | None = None
    tokenize: Callable[[str], Sequence[int]] | None = None
    earlier: Sequence[Sequence[int]] = ()
    workspace: WorkspaceIndex | None = None


class Drafter(Protocol):
    """Proposes the next tokens. It can be wrong, never harmful."""

    def begin(self, context: DraftContext) -> None:
        """Forget the last answer and prepare for a new one."""
        ...

    def propose(self, limit: int) -> Draft:
        """Return a draft of at most `limit` tokens; under 1 ms at 8,000 tokens of context."""
        ...

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Learn what the target emitted in the pass just run.

        Args:
            accepted: the drafted tokens that the target kept, whoever drafted them.
            next_token: the target's own token after them.
        """
        ...
