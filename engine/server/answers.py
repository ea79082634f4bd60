"""From the engine's events to JSON: chunks, usage, statistics, errors. Pure functions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine.core import EngineError, Finished, GenerationStats, Progress, TextDelta

HTTP_STATUS = {
    "invalid_request": 400,
    "context_length_exceeded": 400,
    "unauthorized": 401,
    "model_not_found": 404,
    "unsupported_model": 400,
    "download_failed": 502,
    "download_damaged": 502,
    "disk_full": 507,
    "out_of_memory": 507,
    "draft_model_mismatch": 400,
    "engine_busy": 503,
    "engine_stopping": 503,
    "internal": 500,
}
"""HTTP status by error code, as docs/engine-api.md has it."""

DONE = b"data: [DONE]\n\n"


class AnswerHead(NamedTuple):
    """What every chunk of one answer repeats.

    Attributes:
        id: unlike that of any other answer of this engine.
        created: Unix time in whole seconds.
        model: the model's name as the request has it.
    """

    id: str
    created: int
    model: str


def sse(value: Mapping[str, Any]) -> bytes:
    """One server-sent event. Only ASCII goes out, so no text can break the framing."""
    return b"data: " + json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n\n"


def sse_comment(progress: Progress) -> bytes:
    """Progress for clients that do not know ours: a comment, which every reader skips."""
    text = f"{progress.phase} {progress.detail}".encode("ascii", "replace")
    return b": " + b" ".join(text.split()) + b"\n\n"


def _chunk(head: AnswerHead, choices: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": head.id,
        "object": "chat.completion.chunk",
        "created": head.created,
        "model": head.model,
        "choices": choices,
    }


def progress_chunk(head: AnswerHead, progress: Progress) -> dict[str, Any]:
    """A chunk without choices that says what is going on."""
    return {**_chunk(head, []), "redraft": {"progress": progress_object(progress)}}


def text_chunk(head: AnswerHead, delta: TextDelta, *, first: bool) -> dict[str, Any]:
    """A chunk of text; the first one names the role, as OpenAI's does."""
    content: dict[str, Any] = {"content": delta.text}
    if first:
        content = {"role": "assistant", **content}
    chunk = _chunk(head, [{"index": 0, "delta": content, "finish_reason": None}])
    ours: dict[str, Any] = {}
    if delta.copied:
        ours["copied"] = [list(run) for run in delta.copied]
    if delta.tokens:
        ours["tokens"], ours["seconds"] = delta.tokens, round(delta.seconds, 4)
    if ours:
        chunk["redraft"] = ours
    return chunk


def finish_chunk(head: AnswerHead, reason: str) -> dict[str, Any]:
    """The chunk that ends the text."""
    return _chunk(head, [{"index": 0, "delta": {}, "finish_reason": reason}])


def usage_chunk(head: AnswerHead, stats: GenerationStats) -> dict[str, Any]:
    """The last chunk: what the answer cost."""
    chunk = _chunk(head, [])
    chunk["usage"] = usage_object(stats)
    chunk["redraft"] = {"stats": stats_object(stats)}
    return chunk


def completion_object(head: AnswerHead, text: str, finished: Finished) -> dict[str, Any]:
    """The whole answer as one object, for requests without `stream`."""
    return {
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "logprobs": None,
                "finish_reason": finished.reason,
            }
        ],
        "usage": usage_object(finished.stats),
        "redraft": {"stats": stats_object(finished.stats)},
    }


def progress_object(progress: Progress) -> dict[str, Any]:
    """`{"phase", "fraction", "detail"}`."""
    return {
        "phase": progress.phase,
        "fraction": progress.fraction,
        "detail": progress.detail,
    }


def usage_object(stats: GenerationStats) -> dict[str, Any]:
    """OpenAI's `usage`."""
    return {
        "prompt_tokens": stats.prompt_tokens,
        "completion_tokens": stats.tokens,
        "total_tokens": stats.prompt_tokens + stats.tokens,
        "prompt_tokens_details": {"cached_tokens": stats.cached_prompt_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": stats.accepted,
            "rejected_prediction_tokens": stats.drafted - stats.accepted,
        },
    }


def stats_object(stats: GenerationStats) -> dict[str, Any]:
    """`redraft.stats`: times in seconds, rates a second."""
    return {
        "model": stats.model,
        "runner": stats.runner,
        "device": stats.device,
        "dtype": stats.dtype,
        "prompt_tokens": stats.prompt_tokens,
        "cached_prompt_tokens": stats.cached_prompt_tokens,
        "tokens": stats.tokens,
        "prefill_seconds": stats.prefill_seconds,
        "decode_seconds": stats.decode_seconds,
        "tokens_per_second": stats.tokens_per_second,
        "passes": stats.passes,
        "tokens_per_pass": stats.tokens_per_pass,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "acceptance": stats.accepted / stats.drafted if stats.drafted else None,
        "drafted_by_origin": dict(stats.drafted_by_origin),
        "accepted_by_origin": dict(stats.accepted_by_origin),
        "exact": stats.exact,
        "smallest_margin": _finite(stats.smallest_margin),
        "kept_sequences": stats.kept_sequences,
        "kept_bytes": stats.kept_bytes,
        "notice": stats.notice,
    }


def _finite(number: float | None) -> float | None:
    # JSON knows no infinity.
    return number if number is not None and math.isfinite(number) else None


def error_object(error: EngineError) -> dict[str, Any]:
    """`{"error": {"message", "type", "code", "param"}}`."""
    status = HTTP_STATUS.get(error.code, 500)
    return {
        "error": {
            "message": error.message,
            "type": "invalid_request_error" if status < 500 else "server_error",
            "code": error.code,
            "param": getattr(error, "param", None),
        }
    }
