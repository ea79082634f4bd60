from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.core import RewriteError
from lsp_server.engine_answer import (
    AnswerReader,
    EngineFinished,
    EngineProgress,
    EngineText,
    error_of,
)


def chunk(text: str | None = None, reason: str | None = None, **keys: Any) -> str:
    delta = {} if text is None else {"content": text}
    choices = [{"index": 0, "delta": delta, "finish_reason": reason}]
    return json.dumps({"model": "m", "choices": choices, **keys})


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_our_chunks_become_progress_text_and_our_statistics():
    reader = AnswerReader()
    progress = {"phase": "loading", "fraction": 0.5, "detail": "half"}
    assert reader.read(json.dumps({"choices": [], "redraft": {"progress": progress}})) == [
        EngineProgress("loading", 0.5, "half")
    ]
    assert reader.read(chunk("abc", redraft={"copied": [[0, 7, 2]]})) == [
        EngineText("abc", ((0, 7, 2),))
    ]
    assert reader.read(chunk(reason="stop")) == []
    assert (
        reader.read(json.dumps({"choices": [], "usage": {}, "redraft": {"stats": {"p": 1}}})) == []
    )
    assert reader.read("[DONE]") == []
    assert reader.done
    assert reader.finished() == EngineFinished("stop", {"p": 1})


def test_another_servers_statistics_come_from_its_usage_and_our_clock():
    clock = Clock()
    reader = AnswerReader(clock)
    clock.now = 101.5
    assert reader.read(chunk("ab")) == [EngineText("ab")]
    clock.now = 103.5
    reader.read(chunk("c", reason="length"))
    clock.now = 110.0
    usage = {
        "prompt_tokens": 50,
        "completion_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 6,
            "rejected_prediction_tokens": 2,
        },
    }
    reader.read(json.dumps({"choices": [], "usage": usage}))
    assert reader.finished() == EngineFinished(
        "length",
        {
            "model": "m",
            "runner": "openai",
            "device": "",
            "dtype": "",
            "prompt_tokens": 50,
            "cached_prompt_tokens": 20,
            "tokens": 10,
            "prefill_seconds": 1.5,
            "decode_seconds": 2.0,
            "tokens_per_second": 5.0,
            "passes": 0,
            "tokens_per_pass": 0.0,
            "drafted": 8,
            "accepted": 6,
            "acceptance": 0.75,
            "drafted_by_origin": {},
            "accepted_by_origin": {},
        },
    )


def test_a_server_without_usage_is_counted_by_its_chunks():
    reader = AnswerReader()
    for text in "abc":
        reader.read(chunk(text))
    reader.read(chunk(reason="stop"))
    stats = reader.finished().stats
    assert (stats["tokens"], stats["acceptance"]) == (3, None)


@pytest.mark.parametrize(
    "copied",
    [3, [3], [[0, 1]], [[0, 1, 2, 3]], [[-1, 0, 1]], [[0, -1, 1]], [[0, 0, 4]], [[0, 0, 0]],
     [[3, 0, 1]], [["0", 0, 1]], [[True, 0, 1]], None],
)  # fmt: skip
def test_a_copied_range_that_cannot_be_is_left_out(copied):
    assert AnswerReader().read(chunk("abc", redraft={"copied": copied})) == [EngineText("abc")]


def test_an_answer_that_never_ends_is_no_answer():
    reader = AnswerReader()
    reader.read(chunk("a"))
    reader.read("[DONE]")
    with pytest.raises(RewriteError) as caught:
        reader.finished()
    assert caught.value.code == "bad_answer"


@pytest.mark.parametrize("data", ["", "x", "[]", "1", "[" * 100_000])
def test_what_is_no_chunk_is_refused(data):
    with pytest.raises(RewriteError) as caught:
        AnswerReader().read(data)
    assert caught.value.code == "bad_answer"


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"error": {"code": "disk_full", "message": "Full."}}, "disk_full", "Full."),
        ({"error": {"code": None, "type": "rate", "message": "Slow."}}, "rate", "Slow."),
        ({"error": {"code": 400, "message": "Bad."}}, "server_error", "Bad."),
        ({"object": "error", "type": "NotFoundError", "message": "No."}, "NotFoundError", "No."),
        ({"error": "plain"}, "server_error", "plain"),
        ({"detail": "Not Found"}, "server_error", "Not Found"),
        (None, "server_error", "The server answered with HTTP status 418."),
        ([], "server_error", "The server answered with HTTP status 418."),
        ({"error": {"message": 5}}, "server_error", "The server answered with HTTP status 418."),
    ],
)
def test_an_error_body_of_any_server_is_understood(body, code, message):
    error = error_of(body, 418)
    assert (error.code, error.message) == (code, message)


def test_an_error_in_the_stream_is_raised_with_its_code():
    with pytest.raises(RewriteError) as caught:
        AnswerReader().read('{"error": {"code": "out_of_memory", "message": "No room."}}')
    assert (caught.value.code, caught.value.message) == ("out_of_memory", "No room.")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["error", "redraft", "progress", "stats", "usage", "choices", "delta",
                         "content", "finish_reason", "copied", "code", "message", "x"]),
        inner,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.lists(json_values.map(json.dumps) | st.text(max_size=10)))
def test_whatever_a_server_sends_is_read_or_refused(datas):
    reader = AnswerReader()
    refused = None
    try:
        for data in datas:
            for event in reader.read(data):
                assert isinstance(event, EngineProgress | EngineText)
        reader.finished()
    except RewriteError as error:
        refused = error
    assert refused is None or refused.message
