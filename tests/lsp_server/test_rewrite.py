from __future__ import annotations

from typing import Any, cast

import pytest

from lsp_server.core import (
    GenerationOptions,
    Progress,
    RewriteError,
    RewriteRequest,
    RewriteResult,
    Span,
    Status,
)
from lsp_server.engine_client import EngineClient, EngineFinished, EngineProgress, EngineText
from lsp_server.rewrite import MAX_INSTRUCTION_CHARS, MAX_SPAN_CHARS, check_request, rewrite

TEXT = "def f():\r\n    return a\r\n"
REQUEST = RewriteRequest(TEXT, Span(0, TEXT.index("a\r") + 1), "python", "return b")
ANSWER = "def f():\n    return b"


class Engine:
    """Answers with the events it was given."""

    def __init__(self, *events: Any) -> None:
        self.events = events
        self.body: dict[str, Any] = {}
        self.read = 0

    async def generate(self, body):
        self.body = body
        for event in self.events:
            self.read += 1
            yield event


async def run(*events: Any, request: RewriteRequest = REQUEST) -> tuple[list[Any], RewriteResult]:
    """Return what came, and the result, which is always the last and the only one."""
    engine = Engine(*events)
    came = [event async for event in rewrite(request, cast("EngineClient", engine))]
    assert [isinstance(event, RewriteResult) for event in came] == [False] * (len(came) - 1) + [
        True
    ]
    return came, came[-1]


async def test_an_answer_becomes_hunks_with_the_documents_line_ends() -> None:
    stats = {"tokens": 9}
    came, result = await run(
        EngineProgress("prefill", 0.5, "half"),
        EngineText(ANSWER, tokens=8, seconds=0.5),
        EngineFinished("stop", stats),
    )
    assert came[0] == Progress("prefill", 0.5, "half")
    assert came[1].phase == "writing"
    assert came[1].detail == "16 tokens/s"
    assert (result.status, result.message, result.stats) == (Status.OK, "", stats)
    assert result.text == "def f():\r\n    return b"
    assert [(h.old_text, h.new_text) for h in result.hunks] == [("    return a", "    return b")]


@pytest.mark.parametrize(
    ("answer", "reason", "status"),
    [
        (ANSWER, "length", Status.CUT_OFF),
        ("", "stop", Status.EMPTY),
        (" \n", "stop", Status.EMPTY),
        ("def f():\n    return a", "stop", Status.UNCHANGED),
        ("def f(:\n    return b", "stop", Status.REFUSED),
        ("def f(a):\n    return '\0'", "stop", Status.REFUSED),
        ("def f(a):\n    return '\ufffd'", "stop", Status.REFUSED),
    ],
)
async def test_an_answer_that_is_not_whole_or_not_sound_has_no_hunks(
    answer, reason, status
) -> None:
    _, result = await run(EngineText(answer), EngineFinished(reason, {}))
    assert (result.status, result.hunks) == (status, ())
    assert result.text.strip() == answer.strip()
    assert result.message


async def test_a_closing_fence_ends_the_answer_whatever_the_model_still_writes() -> None:
    engine = Engine(
        EngineText(f"{ANSWER}\n```\n", tokens=12, seconds=2.0),
        EngineText("Now, let me explain"),
        EngineFinished("length", {}),
    )
    came = [event async for event in rewrite(REQUEST, cast("EngineClient", engine))]
    assert engine.read == 1
    assert came[-1].status is Status.OK
    # What is known although the engine was not heard to the end.
    assert came[-1].stats == {"tokens": 12, "decode_seconds": 2.0, "tokens_per_second": 6.0}


async def test_the_options_reach_the_engine() -> None:
    engine = Engine(EngineText(ANSWER), EngineFinished("stop", {}))
    options = GenerationOptions("m", "d", False, 0.5, 7, 99)
    request = RewriteRequest(TEXT, REQUEST.span, "python", "x", options)
    _ = [event async for event in rewrite(request, cast("EngineClient", engine))]
    body = engine.body
    assert (body["model"], body["temperature"], body["seed"]) == ("m", 0.5, 7)
    assert body["max_tokens"] == 99
    source = "def f():\n    return a"
    assert body["redraft"] == {"source": source, "draft": False, "draft_model": "d"}
    assert body["prediction"]["content"] == source


async def test_the_folders_and_the_endings_of_the_language_are_named_where_both_are_known() -> None:
    for language, named in (("python", ["py", "pyi", "pyw"]), ("", None)):
        engine = Engine(EngineText(ANSWER), EngineFinished("stop", {}))
        request = RewriteRequest(TEXT, REQUEST.span, language, "x", folders=("/work",))
        _ = [event async for event in rewrite(request, cast("EngineClient", engine))]
        told = engine.body["redraft"].get("workspace")
        assert told == (named and {"folders": ["/work"], "suffixes": named})


BAD = [
    ("empty_instruction", TEXT, Span(0, 9), " \n"),
    ("instruction_too_long", TEXT, Span(0, 9), "x" * (MAX_INSTRUCTION_CHARS + 1)),
    ("empty_selection", "a\n  \n", Span(2, 4), "x"),
    ("context_length_exceeded", "a" * (MAX_SPAN_CHARS + 1), Span(0, MAX_SPAN_CHARS + 1), "x"),
]


@pytest.mark.parametrize(("code", "text", "span", "instruction"), BAD, ids=[b[0] for b in BAD])
def test_a_request_that_cannot_be_sent_is_refused_with_its_own_sentence(
    code, text, span, instruction
) -> None:
    with pytest.raises(RewriteError) as caught:
        check_request(RewriteRequest(text, span, "python", instruction))
    assert caught.value.code == code
    assert len(caught.value.message) > 20


def test_a_request_at_its_limits_is_sent() -> None:
    text = "a" * MAX_SPAN_CHARS
    check_request(RewriteRequest(text, Span(0, len(text)), "", "x" * MAX_INSTRUCTION_CHARS))
