from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from engine.core import (
    CopiedRun,
    EngineError,
    Finished,
    GenerationStats,
    Progress,
    TextDelta,
)
from engine.server import answers
from engine.server.answering import error_response
from engine.server.wire import InvalidRequest

HEAD = answers.AnswerHead("chatcmpl-1", 1700000000, "m")
STATS = GenerationStats(
    model="m",
    runner="r",
    device="cpu",
    dtype="float32",
    prompt_tokens=100,
    cached_prompt_tokens=60,
    smallest_margin=0.25,
    kept_sequences=3,
    kept_bytes=4096,
    tokens=40,
    prefill_seconds=1.5,
    decode_seconds=2.0,
    passes=10,
    drafted=50,
    accepted=30,
    drafted_by_origin={"source": 40, "ngram": 10},
    accepted_by_origin={"source": 28, "ngram": 2},
)


def test_progress_is_a_chunk_without_choices():
    assert answers.progress_chunk(HEAD, Progress("loading", 0.25, "half a GB")) == {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "m",
        "choices": [],
        "redraft": {"progress": {"phase": "loading", "fraction": 0.25, "detail": "half a GB"}},
    }


def test_text_comes_with_the_ranges_it_was_copied_from():
    delta = TextDelta("def f", (CopiedRun(0, 12, 3), CopiedRun(4, 16, 1)))
    first = answers.text_chunk(HEAD, delta, first=True)
    assert first["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": "def f"}, "finish_reason": None}
    ]
    assert first["redraft"] == {"copied": [[0, 12, 3], [4, 16, 1]]}
    later = answers.text_chunk(HEAD, TextDelta("x"), first=False)
    assert later["choices"][0]["delta"] == {"content": "x"}
    assert "redraft" not in later


def test_the_last_chunk_has_usage_and_statistics():
    chunk = answers.usage_chunk(HEAD, STATS)
    assert chunk["choices"] == []
    assert chunk["usage"] == {
        "prompt_tokens": 100,
        "completion_tokens": 40,
        "total_tokens": 140,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 30,
            "rejected_prediction_tokens": 20,
        },
    }
    assert chunk["redraft"]["stats"] == {
        "model": "m",
        "runner": "r",
        "device": "cpu",
        "dtype": "float32",
        "prompt_tokens": 100,
        "cached_prompt_tokens": 60,
        "tokens": 40,
        "prefill_seconds": 1.5,
        "decode_seconds": 2.0,
        "tokens_per_second": 20.0,
        "passes": 10,
        "tokens_per_pass": 4.0,
        "drafted": 50,
        "accepted": 30,
        "acceptance": 0.6,
        "drafted_by_origin": {"source": 40, "ngram": 10},
        "accepted_by_origin": {"source": 28, "ngram": 2},
        "exact": True,
        "smallest_margin": 0.25,
        "kept_sequences": 3,
        "kept_bytes": 4096,
        "notice": "",
    }


def test_a_margin_without_a_second_best_is_null():
    assert (
        answers.stats_object(GenerationStats(smallest_margin=float("inf")))["smallest_margin"]
        is None
    )


def test_acceptance_is_null_when_nothing_was_drafted():
    assert answers.stats_object(GenerationStats())["acceptance"] is None


def test_the_whole_answer_is_one_object():
    whole = answers.completion_object(HEAD, "text", Finished("length", STATS))
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": "text"}
    assert whole["choices"][0]["finish_reason"] == "length"
    assert whole["usage"]["total_tokens"] == 140
    assert whole["redraft"]["stats"]["passes"] == 10


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "\u2028", "data: x\n\n", "\ud800", "é"])
def test_no_text_can_break_the_framing_of_an_event(text):
    event = answers.sse({"text": text})
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert b"\n" not in event[:-2]
    assert b"\r" not in event
    assert json.loads(event.removeprefix(b"data: ")) == {"text": text}


def test_a_comment_is_one_line_whatever_the_detail_says():
    comment = answers.sse_comment(Progress("loading", None, "a\n\ndata: b é"))
    assert comment == b": loading a data: b ?\n\n"


def test_every_code_has_the_status_that_the_contract_names():
    page = Path(__file__).parents[3].joinpath("docs/engine-api.md").read_text(encoding="utf-8")
    table = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", page, re.MULTILINE)
    assert {code: int(status) for code, status in table} == answers.HTTP_STATUS


def test_an_error_names_message_type_code_and_key():
    assert answers.error_object(InvalidRequest("stop", "No.")) == {
        "error": {
            "message": "No.",
            "type": "invalid_request_error",
            "code": "invalid_request",
            "param": "stop",
        }
    }
    assert (
        answers.error_object(EngineError("disk_full", "Full."))["error"]["type"] == "server_error"
    )
    assert error_response(EngineError("disk_full", "Full.")).status_code == 507
    assert error_response(EngineError("never_heard_of", "?")).status_code == 500
