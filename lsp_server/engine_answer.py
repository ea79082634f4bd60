"""Reads the chunks of one answer, of our engine or of any OpenAI-compatible server.

Pure but for the clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lsp_server.core import RewriteError

DONE = "[DONE]"


class EngineProgress(NamedTuple):
    """What the engine is doing before the first text; see `lsp_server.core.Progress`."""

    phase: str
    fraction: float | None = None
    detail: str = ""


class EngineText(NamedTuple):
    """More of the answer.

    Attributes:
        text: the new part.
        copied: `(start, source_start, length)` in characters: this part of `text` is a
            verbatim copy of that part of the source.
        tokens: tokens so far, or 0 where the server does not say.
        seconds: seconds of decoding so far, or 0 likewise.
    """

    text: str
    copied: tuple[tuple[int, int, int], ...] = ()
    tokens: int = 0
    seconds: float = 0.0


class EngineFinished(NamedTuple):
    """The end of the answer.

    Attributes:
        reason: `stop`, `length`, or what another server says.
        stats: `redraft.stats` of docs/engine-api.md; for another server the same keys
            as far as they can be known.
    """

    reason: str
    stats: Mapping[str, Any]


class AnswerReader:
    """Turns the data of server-sent events into the client's events."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked_at = clock()
        self._first_at: float | None = None
        self._ended_at: float | None = None
        self._model = ""
        self._texts = 0
        self._usage: Mapping[str, Any] = {}
        self._stats: Mapping[str, Any] | None = None
        self.reason: str | None = None
        self.done = False

    def read(self, data: str) -> list[EngineProgress | EngineText]:
        """Read one event.

        Raises:
            RewriteError: it is an error, or not a chunk at all.
        """
        if data.strip() == DONE:
            self.done = True
            return []
        try:
            chunk = json.loads(data)
        except (ValueError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            raise RewriteError("bad_answer", "The server's answer is not one of a chat completion.")
        if chunk.get("error") is not None:
            raise error_of(chunk, 500)
        events: list[EngineProgress | EngineText] = []
        ours = _mapping(chunk.get("redraft"))
        if "progress" in ours:
            events.append(_progress(_mapping(ours["progress"])))
        if isinstance(ours.get("stats"), dict):
            self._stats = ours["stats"]
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        if isinstance(chunk.get("model"), str):
            self._model = chunk["model"]
        self._read_choice(chunk.get("choices"), ours, events)
        return events

    def _read_choice(
        self, choices: Any, ours: Mapping[str, Any], events: list[EngineProgress | EngineText]
    ) -> None:
        if not isinstance(choices, list) or not choices:
            return
        choice = _mapping(choices[0])
        text = _mapping(choice.get("delta")).get("content")
        if isinstance(text, str) and text:
            if self._first_at is None:
                self._first_at = self._clock()
            self._texts += 1
            events.append(
                EngineText(
                    text,
                    _copied(ours.get("copied"), len(text)),
                    int(_positive(ours.get("tokens"))),
                    _positive(ours.get("seconds")),
                )
            )
        if isinstance(choice.get("finish_reason"), str):
            self.reason = choice["finish_reason"]
            self._ended_at = self._clock()

    def finished(self) -> EngineFinished:
        """The end; call it once the stream is complete.

        Raises:
            RewriteError: the server never said how the answer ended.
        """
        if self.reason is None:
            raise RewriteError("bad_answer", "The server did not say how its answer ended.")
        stats = self._measured() if self._stats is None else self._stats
        return EngineFinished(self.reason, stats)

    def _measured(self) -> dict[str, Any]:
        """The statistics of a server that does not send ours."""
        ended = self._clock() if self._ended_at is None else self._ended_at
        first = ended if self._first_at is None else self._first_at
        # A server without usage sends about one token a chunk.
        tokens = _count(self._usage.get("completion_tokens"), self._texts)
        details = _mapping(self._usage.get("completion_tokens_details"))
        accepted = _count(details.get("accepted_prediction_tokens"), 0)
        drafted = accepted + _count(details.get("rejected_prediction_tokens"), 0)
        cached = _mapping(self._usage.get("prompt_tokens_details")).get("cached_tokens")
        decode = ended - first
        return {
            "model": self._model,
            "runner": "openai",
            "device": "",
            "dtype": "",
            "prompt_tokens": _count(self._usage.get("prompt_tokens"), 0),
            "cached_prompt_tokens": _count(cached, 0),
            "tokens": tokens,
            "prefill_seconds": first - self._asked_at,
            "decode_seconds": decode,
            "tokens_per_second": tokens / decode if decode > 0 else 0.0,
            "passes": 0,
            "tokens_per_pass": 0.0,
            "drafted": drafted,
            "accepted": accepted,
            "acceptance": accepted / drafted if drafted else None,
            "drafted_by_origin": {},
            "accepted_by_origin": {},
        }


def error_of(body: Any, status: int) -> RewriteError:
    """The error that a server's body speaks of, whoever's server it is."""
    body = _mapping(body)
    # OpenAI nests it; some servers put the same keys at the top.
    error = _mapping(body.get("error")) or body
    message = error.get("message") or body.get("detail") or body.get("error")
    if not isinstance(message, str) or not message:
        message = f"The server answered with HTTP status {status}."
    named = [error.get("code"), error.get("type"), "server_error"]
    code = next(name for name in named if isinstance(name, str) and name)
    return RewriteError(code, message[:2000])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any, default: int) -> int:
    return value if isinstance(value, int) and value >= 0 else default


def _progress(value: Mapping[str, Any]) -> EngineProgress:
    fraction = value.get("fraction")
    return EngineProgress(
        str(value.get("phase", "")),
        float(fraction) if isinstance(fraction, int | float) else None,
        str(value.get("detail", "")),
    )


def _positive(value: Any) -> float:
    """A number that a server sent, or 0 where it is none or makes no sense."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    return float(value) if 0 <= value < 1e12 else 0.0


def _copied(value: Any, length: int) -> tuple[tuple[int, int, int], ...]:
    if not isinstance(value, list):
        return ()
    runs: list[tuple[int, int, int]] = []
    for run in value:
        if not isinstance(run, list) or len(run) != 3 or not all(type(n) is int for n in run):
            continue
        start, source_start, count = run
        if start >= 0 and source_start >= 0 and 0 < count <= length - start:
            runs.append((start, source_start, count))
    return tuple(runs)
