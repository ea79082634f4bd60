"""The language server's words: spans, hunks, rewrites and their events. Data only.

Offsets are indices into the document's text as a Python string, which keeps the line
ends as they are in the document. Turning them into LSP positions happens at the edge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple


class Span(NamedTuple):
    """The range of the document that a rewrite may change: `text[start:end]`.

    A span found by syntax covers whole lines: it begins at the first column of its
    first line and ends after the last character of its last line, line end excluded.

    Attributes:
        start, end: character offsets.
        kind: `function`, `class`, `selection` or `lines`.
        name: the symbol's name where there is one, else the empty string.
    """

    start: int
    end: int
    kind: str = "selection"
    name: str = ""


class Hunk(NamedTuple):
    """One minimal replaced range: `text[start:end]` becomes `new_text`.

    Attributes:
        id: stable while the answer streams: the hunk at the same place keeps its id.
        start, end: character offsets in the whole document.
        old_text, new_text: with the document's own line ends.
    """

    id: str
    start: int
    end: int
    old_text: str
    new_text: str


class Status(str, Enum):
    """How a rewrite ended."""

    OK = "ok"
    UNCHANGED = "unchanged"
    EMPTY = "empty"
    CUT_OFF = "cut_off"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    STALE = "stale"
    FAILED = "failed"


class RewriteError(Exception):
    """A rewrite that cannot be done, in one sentence for people.

    Attributes:
        code: e.g. `no_span`, `empty_instruction`, `too_large`, or the engine's own code.
        message: what happened and what to do.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How the answer is generated; see docs/engine-api.md for each."""

    model: str | None = None
    draft_model: str | None = None
    draft: bool = True
    temperature: float = 0.0
    seed: int = 0
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RewriteRequest:
    """One rewrite, fixed at the moment it was asked for.

    Attributes:
        text: the whole document.
        span: the part that may change.
        language: LSP language id, or the empty string when not known.
        instruction: what to change, in the user's words.
        context: further lines for the prompt, such as a diagnostic's message.
        folders: the workspace's, whose code our own engine may draft from.
    """

    text: str
    span: Span
    language: str
    instruction: str
    options: GenerationOptions = GenerationOptions()
    context: str = ""
    folders: tuple[str, ...] = ()


class Progress(NamedTuple):
    """What is going on before the first token, or while writing.

    Attributes:
        phase: `starting`, `queued`, `fetching`, `converting`, `loading`, `prefill` or `writing`.
        fraction: from 0 to 1, or None where the end is not known.
        detail: a few words for people.
    """

    phase: str
    fraction: float | None = None
    detail: str = ""


class HunksUpdate(NamedTuple):
    """The hunks as far as the answer has settled.

    Attributes:
        hunks: ordered, not overlapping.
        settled: character offset in the document up to which they are final.
        new_text: the span's new text so far.
    """

    hunks: tuple[Hunk, ...]
    settled: int
    new_text: str


@dataclass(frozen=True, slots=True)
class RewriteResult:
    """The end of a rewrite.

    Attributes:
        status: only `ok` may be applied.
        text: the span's new text (for `ok`), or what there is of it, for viewing.
        hunks: the final hunks; empty unless `ok`.
        message: one sentence for people when the status is not `ok`, else empty.
        stats: as the engine reported them (docs/engine-api.md).
    """

    status: Status
    text: str = ""
    hunks: tuple[Hunk, ...] = ()
    message: str = ""
    stats: Mapping[str, Any] = field(default_factory=dict)


RewriteEvent = Progress | HunksUpdate | RewriteResult
