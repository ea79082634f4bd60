"""One rewrite: ask the engine, clean the answer as it streams, turn it into hunks.

The language server and the command line both run this; neither editor nor terminal is
known here.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from lsp_server.core import (
    HunksUpdate,
    Progress,
    RewriteError,
    RewriteEvent,
    RewriteRequest,
    RewriteResult,
    Status,
)
from lsp_server.engine_client import EngineClient, EngineFinished, EngineProgress, EngineText
from lsp_server.languages import suffixes_of
from lsp_server.prompts import Prompt, build_prompt
from lsp_server.syntax_check import new_syntax_errors
from lsp_server.text.answer import AnswerCleaner
from lsp_server.text.hunks import HunkStream, apply_hunks
from lsp_server.text.indent import IndentRestorer

MAX_INSTRUCTION_CHARS = 8_000
MAX_SPAN_CHARS = 400_000

_BROKEN = {"\0": "a NUL character", "\ufffd": "a broken character"}
"""Characters that come from a failure and not from a programmer; a parser lets them pass."""


async def rewrite(
    request: RewriteRequest, engine: EngineClient
) -> AsyncGenerator[RewriteEvent, None]:
    """Yield progress, hunks as they settle, and at the end exactly one result.

    Closing the iterator closes the connection to the engine, which stops within one pass.

    Raises:
        RewriteError: the request is not one that can be sent, or the engine failed.
    """
    check_request(request)
    prompt = build_prompt(request)
    answer = _Answer(request, prompt)
    async with aclosing(engine.generate(request_body(request, prompt))) as events:
        async for event in events:
            if isinstance(event, EngineProgress):
                yield Progress(event.phase, event.fraction, event.detail)
            elif isinstance(event, EngineText):
                answer.feed(event)
                yield _writing(event, answer)
                yield answer.update()
                if answer.finished:
                    break
            elif isinstance(event, EngineFinished):
                answer.reason, answer.stats = event.reason, event.stats
    yield answer.result()


def check_request(request: RewriteRequest) -> None:
    """Raise RewriteError when there is nothing to rewrite, nothing asked, or too much of either."""
    if not request.instruction.strip():
        raise RewriteError("empty_instruction", "Say what to change: the instruction is empty.")
    if len(request.instruction) > MAX_INSTRUCTION_CHARS:
        raise RewriteError(
            "instruction_too_long",
            f"The instruction has {len(request.instruction):,} characters; "
            f"at most {MAX_INSTRUCTION_CHARS:,} are read.",
        )
    if not is_unicode(request.instruction):
        raise RewriteError(
            "bad_instruction", "The instruction holds bytes or halves of characters; retype it."
        )
    source = request.text[request.span.start : request.span.end]
    if not is_unicode(source):
        raise RewriteError(
            "bad_selection",
            "The code holds half of a character (a lone surrogate), which no model can read; "
            "remove it or select other lines.",
        )
    if not source.strip():
        raise RewriteError(
            "empty_selection", "The selection holds no code; select the code to rewrite."
        )
    if request.span.end - request.span.start > MAX_SPAN_CHARS:
        raise RewriteError(
            "context_length_exceeded",
            f"The selection has {request.span.end - request.span.start:,} characters, more than "
            f"any model's window takes here ({MAX_SPAN_CHARS:,}); select a smaller part.",
        )


def is_unicode(text: str) -> bool:
    """Whether a text is whole characters: JSON and command lines can bring lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def request_body(request: RewriteRequest, prompt: Prompt) -> dict[str, Any]:
    """Return the chat completion request (docs/engine-api.md)."""
    options = request.options
    body: dict[str, Any] = {
        "model": options.model or "default",
        "messages": prompt.messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": options.temperature,
        "seed": options.seed,
        "stop": prompt.stop,
        "continue_final_message": True,
        "add_generation_prompt": False,
        "prediction": {"type": "content", "content": prompt.source},
        "redraft": {"source": prompt.source, "draft": options.draft},
    }
    if options.max_tokens is not None:
        body["max_tokens"] = options.max_tokens
    suffixes = suffixes_of(request.language)
    if request.folders and suffixes:
        body["redraft"]["workspace"] = {"folders": list(request.folders), "suffixes": suffixes}
    if options.draft_model:
        body["redraft"]["draft_model"] = options.draft_model
    return body


class _Answer:
    """The answer while it comes in."""

    def __init__(self, request: RewriteRequest, prompt: Prompt) -> None:
        self._request = request
        self._source = prompt.source
        self._cleaner = AnswerCleaner(prompt.fence, prompt.source)
        self._indent = IndentRestorer(prompt.source)
        self._hunks = HunkStream(request.text, request.span)
        self.text = ""
        self.reason: str | None = None
        self.stats: Mapping[str, Any] = {}

    @property
    def finished(self) -> bool:
        """The closing fence has come, whatever the model still writes."""
        return self._cleaner.finished

    @property
    def fraction(self) -> float:
        """A guess at how much is written: an answer is about as long as its source."""
        return min(len(self.text) / max(len(self._source), 1), 0.99)

    def feed(self, event: EngineText) -> None:
        self.text += self._indent.feed(self._cleaner.feed(event.text))
        if event.seconds:
            # All that is known when the answer ends before the engine says so.
            speed = event.tokens / event.seconds
            self.stats = {
                "tokens": event.tokens,
                "decode_seconds": event.seconds,
                "tokens_per_second": speed,
            }

    def update(self) -> HunksUpdate:
        return self._hunks.update(self.text)

    def result(self) -> RewriteResult:
        """Judge the whole answer. Only one that is complete and parses may be applied."""
        finished = self.finished
        self.text += self._indent.feed(self._cleaner.close()) + self._indent.close()
        if self.reason == "length" and not finished:
            return self._not_applied(
                Status.CUT_OFF,
                f"The answer was cut off after {self.stats.get('tokens', '?')} tokens, so nothing "
                "was changed; select less code or allow more tokens.",
            )
        if not self.text.strip():
            return self._not_applied(
                Status.EMPTY, "The model answered with nothing, so nothing was changed."
            )
        broken = [
            name for char, name in _BROKEN.items() if char in self.text and char not in self._source
        ]
        if broken:
            return self._not_applied(
                Status.REFUSED,
                f"The answer holds {broken[0]}, which the code did not, so nothing was changed; "
                "run it again with another wording.",
            )
        hunks = self._hunks.finish(self.text)
        if not hunks:
            return self._not_applied(Status.UNCHANGED, "The model left the code as it is.")
        after = apply_hunks(self._request.text, hunks)
        grown = len(after) - len(self._request.text)
        span = self._request.span
        problems = new_syntax_errors(
            self._request.text, after, self._request.language, span, span.end + grown
        )
        if problems:
            return self._not_applied(
                Status.REFUSED,
                f"The answer does not parse ({problems[0]}), so nothing was changed; "
                "word the instruction differently or select less code.",
            )
        return RewriteResult(
            Status.OK, after[span.start : span.end + grown], hunks, stats=self.stats
        )

    def _not_applied(self, status: Status, message: str) -> RewriteResult:
        return RewriteResult(status, self.text, (), message, self.stats)


def _writing(event: EngineText, answer: _Answer) -> Progress:
    speed = event.tokens / event.seconds if event.seconds else 0.0
    return Progress("writing", answer.fraction, f"{speed:.0f} tokens/s" if speed else "")
