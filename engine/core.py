"""The engine's words: what a request is, and what it answers with.

Dataclasses and named tuples only. The HTTP layer turns JSON into a `GenerationRequest`
and events into JSON (docs/engine-api.md); everything between speaks these types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class EngineError(Exception):
    """Something a person has to know, with a code that a program can act on.

    Attributes:
        code: one of the codes in docs/engine-api.md, e.g. `model_not_found`.
        message: one sentence: what happened and what to do.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Cancelled(Exception):
    """The client has gone, so the work stops; never shown to anybody."""


class Message(NamedTuple):
    """One chat message."""

    role: str
    content: str


class Workspace(NamedTuple):
    """The user's open folders, whose code drafts may be made from.

    Attributes:
        folders: absolute paths.
        suffixes: of the files to read, without the dot: those of one language.
    """

    folders: tuple[str, ...]
    suffixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer to generate.

    Attributes:
        model: a name of the model table, a hub id, a local folder or a `.gguf` path.
        messages: the chat so far.
        continue_final_message: the last message is the assistant's and is continued,
            not answered (the opened answer fence).
        max_tokens: most tokens to generate; 0 only warms the prefix; None lets the
            engine choose from the size of the source.
        temperature: 0 is greedy.
        top_p: share of probability kept, 1 keeps all.
        top_k: how many tokens are kept, 0 keeps all.
        min_p: tokens less probable than this share of the most probable one are dropped.
        repetition_penalty: divides the logits of tokens seen before; 1 is none.
        logit_bias: `(token id, added to its logit)`.
        banned_tokens: token ids that are never chosen.
        acceptance: `coupled` (a seeded text is the same with and without drafts) or
            `rejection` (the same distribution, more drafted tokens accepted).
        exact: drafts must never change a token; False takes the faster passes where
            those differ (engine/runner.py).
        seed: keys the sampling noise together with the position of each token.
        stop: texts that end the answer; never part of it.
        source: the text being rewritten, verbatim, or None.
        draft: False is plain decoding, one token a pass.
        draft_model: a second, smaller model that drafts where there is nothing to copy.
        workspace: whose files are read for drafts, or None.
        window: names the editor window that asks, whose earlier rewrites help drafting;
            None: nothing is remembered of this answer.
    """

    model: str
    messages: tuple[Message, ...]
    continue_final_message: bool = False
    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    banned_tokens: frozenset[int] = frozenset()
    acceptance: str = "coupled"
    exact: bool = True
    seed: int = 0
    stop: tuple[str, ...] = ()
    source: str | None = None
    draft: bool = True
    draft_model: str | None = None
    workspace: Workspace | None = None
    window: str | None = None


class CopiedRun(NamedTuple):
    """A part of a text delta that was copied from the source: `delta[start:start+length]`
    equals `source[source_start:source_start+length]`, all in characters.
    """

    start: int
    source_start: int
    length: int


class Progress(NamedTuple):
    """What the engine is doing before the first token.

    Attributes:
        phase: `queued`, `fetching`, `converting`, `loading` or `prefill`.
        fraction: from 0 to 1, or None where the end is not known.
        detail: a few words for people, e.g. `412 of 1117 MB, 18 MB/s`.
    """

    phase: str
    fraction: float | None = None
    detail: str = ""


class TextDelta(NamedTuple):
    """Text that the target has settled, whole characters only.

    Attributes:
        text: what has come since the last delta.
        copied: the parts of it that were copied from the source.
        tokens: tokens emitted so far, this delta's included.
        seconds: seconds of decoding so far.
    """

    text: str
    copied: tuple[CopiedRun, ...] = ()
    tokens: int = 0
    seconds: float = 0.0


class RunnerState(NamedTuple):
    """How the loaded model is run, for `/healthz`; the words are those of the statistics."""

    runner: str
    device: str
    dtype: str
    exact: bool
    notice: str


@dataclass(slots=True)
class GenerationStats:
    """What an answer cost. `tokens` counts what the target emitted, end token included.

    Attributes:
        exact: drafts could not change a token (the passes were row-invariant).
        smallest_margin: least distance of the two best logits at an emitted position;
            None before the first pass.
        kept_sequences, kept_bytes: what the prefix cache held when the answer began.
        notice: a sentence for people about how this model is served, or "".
    """

    model: str = ""
    runner: str = ""
    device: str = ""
    dtype: str = ""
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    drafted_by_origin: dict[str, int] = field(default_factory=dict)
    accepted_by_origin: dict[str, int] = field(default_factory=dict)
    exact: bool = True
    smallest_margin: float | None = None
    kept_sequences: int = 0
    kept_bytes: int = 0
    notice: str = ""

    @property
    def tokens_per_second(self) -> float:
        """Tokens a second of decoding; prefill is not counted."""
        return self.tokens / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def tokens_per_pass(self) -> float:
        """Tokens emitted a pass, passes without a draft included."""
        return self.tokens / self.passes if self.passes else 0.0


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing to tell: a point where other answers may have their turn."""


class Finished(NamedTuple):
    """The end of an answer.

    Attributes:
        reason: `stop` (closing fence, stop text or end token) or `length` (cut off).
        stats: what it cost.
    """

    reason: str
    stats: GenerationStats


Event = Progress | TextDelta | Tick | Finished

IsCancelled = Callable[[], bool]
OnProgress = Callable[[Progress], None]


def ignore_progress(progress: Progress) -> None:
    """An `OnProgress` for callers that do not care."""


def never_cancelled() -> bool:
    """An `IsCancelled` for callers that wait."""
    return False


class Generator(Protocol):
    """What the HTTP layer needs of the engine's inside; called on one worker thread."""

    def generate(self, request: GenerationRequest, is_cancelled: IsCancelled) -> Iterator[Event]:
        """Yield progress, then text, then one `Finished`, ticks between them.

        It yields at every pass and every step of prefill, and asks `is_cancelled` there.
        The iterators of several requests may be run in turns, on one thread.

        Raises:
            EngineError: the request cannot be served.
            Cancelled: `is_cancelled` answered True.
        """
        ...
