"""Bad input, a broken engine: one request fails with a sentence, and the next one works."""

from __future__ import annotations

from typing import Any

import pytest
from pygls.exceptions import JsonRpcException

from tests.editor.editor import Editor
from tests.editor.scripted_engine import Die, Fail, Hang, ScriptedEngine, Text
from tests.lsp_server.server.test_rewrite import AFTER, ANSWER, FIRST, SOURCE


async def _error(editor: Editor, method: str, params: Any) -> JsonRpcException:
    with pytest.raises(JsonRpcException) as caught:
        await editor.request(method, params)
    return caught.value


def _code(error: JsonRpcException) -> str:
    data = error.data
    return data["code"] if isinstance(data, dict) else data.code  # type: ignore[union-attr]


async def test_an_engine_killed_in_the_middle_costs_one_request(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(FIRST), Die())
    engine.script(Text(ANSWER))
    editor.open("a.py", SOURCE)
    where = editor.where(editor.find("size"))
    error = await _error(editor, "redraft/rewrite", {**where, "instruction": "rename"})
    assert error.code == -32803
    assert _code(error) == "engine_died"
    assert "in the middle of the rewrite; nothing was changed" in error.message
    assert editor.updates[-1]["hunks"] == []
    assert editor.text == SOURCE
    result = await editor.rewrite("rename", editor.find("size"))
    await editor.accept(result["jobId"])
    assert editor.text == AFTER


@pytest.mark.parametrize("begun", [False, True])
async def test_an_error_of_the_engine_is_passed_on_word_for_word(
    editor: Editor, engine: ScriptedEngine, begun: bool
) -> None:
    sentence = "The prompt needs 40,000 tokens; this model takes 32,768."
    fail = Fail("context_length_exceeded", sentence)
    engine.script(*((Text(FIRST), fail) if begun else (fail,)))
    editor.open("a.py", SOURCE)
    where = editor.where(editor.find("size"))
    error = await _error(editor, "redraft/rewrite", {**where, "instruction": "rename"})
    assert (error.code, _code(error)) == (-32803, "context_length_exceeded")
    assert error.message == sentence


async def test_no_function_at_the_cursor_is_said_with_the_line(editor: Editor) -> None:
    editor.open("a.py", SOURCE)
    error = await _error(
        editor, "redraft/rewrite", {**editor.where((0, 0)), "instruction": "rename"}
    )
    assert (error.code, _code(error)) == (-32803, "no_span")
    assert error.message.startswith("There is no function or class at line 1;")


async def test_a_cursor_in_a_file_of_an_unknown_language_needs_a_selection(
    editor: Editor,
) -> None:
    editor.open("a.cob", "MOVE A TO B.\n", "cobol")
    error = await _error(
        editor, "redraft/rewrite", {**editor.where((0, 0)), "instruction": "rename"}
    )
    assert _code(error) == "no_span"
    assert error.message == (
        "redraft cannot find functions in cobol files; select the lines to rewrite."
    )


@pytest.mark.parametrize("instruction", ["", "  \n\t"])
async def test_an_empty_instruction_is_refused(editor: Editor, instruction: str) -> None:
    editor.open("a.py", SOURCE)
    where = editor.where(editor.find("size"))
    error = await _error(editor, "redraft/rewrite", {**where, "instruction": instruction})
    assert (error.code, _code(error)) == (-32803, "empty_instruction")


async def test_a_selection_of_white_space_is_refused(editor: Editor) -> None:
    editor.open("a.py", SOURCE)
    where = editor.where((1, 0), (2, 0))
    error = await _error(editor, "redraft/rewrite", {**where, "instruction": "rename"})
    assert (error.code, _code(error)) == (-32803, "empty_selection")


async def test_a_file_of_five_megabytes_is_refused_with_the_limit(editor: Editor) -> None:
    editor.open("a.py", SOURCE + "# filler line\n" * 360_000)
    where = editor.where((4, 4))
    error = await _error(editor, "redraft/rewrite", {**where, "instruction": "rename"})
    assert (error.code, _code(error)) == (-32803, "too_large")
    assert "more than 2,000,000 characters" in error.message
    assert await editor.code_actions((4, 4)) == []


async def test_a_document_that_is_not_open_is_refused(editor: Editor) -> None:
    editor.open("a.py", SOURCE)
    params = {**editor.where((4, 4)), "instruction": "rename"}
    params["textDocument"] = {"uri": "file:///project/other.py"}
    assert _code(await _error(editor, "redraft/rewrite", params)) == "not_open"


async def test_another_version_is_refused_as_modified(editor: Editor) -> None:
    editor.open("a.py", SOURCE)
    where = editor.where(editor.find("size"))
    editor.type("#\n", (0, 0))
    error = await _error(editor, "redraft/rewrite", {**where, "instruction": "rename"})
    assert error.code == -32801


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"textDocument": None}, "textDocument"),
        ({"textDocument": {"uri": 5}}, "uri"),
        ({"textDocument": {"uri": "file:///project/a.py", "version": "1"}}, "version"),
        ({"position": None}, "position"),
        ({"position": {"line": -1, "character": 0}}, "position"),
        ({"position": {"line": 1.5, "character": 0}}, "position"),
        ({"position": {"line": True, "character": 0}}, "position"),
        ({"range": {"start": {"line": 0, "character": 0}}}, "range"),
        ({"range": [1, 2]}, "range"),
        ({"instruction": None}, "instruction"),
        ({"instruction": ["rename"]}, "instruction"),
        ({"preset": "nonsense"}, "preset"),
        ({"draft": "no"}, "draft"),
        ({"seed": "1"}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"model": 1}, "model"),
        ({"jobId": ""}, "jobId"),
        ({"apply": 1}, "apply"),
        ({"workDoneToken": []}, "workDoneToken"),
    ],
)
async def test_bad_parameters_are_named(editor: Editor, change: dict[str, Any], named: str) -> None:
    editor.open("a.py", SOURCE)
    good = {**editor.where(editor.find("size")), "instruction": "rename"}
    error = await _error(editor, "redraft/rewrite", {**good, **change})
    assert error.code == -32602
    assert named in error.message


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("redraft/rewrite", None),
        ("redraft/rewrite", [1]),
        ("redraft/accept", {}),
        ("redraft/accept", {"jobId": 1}),
        ("redraft/cancel", None),
        ("redraft/warm", {"textDocument": {"uri": "file:///project/a.py"}}),
        ("textDocument/codeAction", {"textDocument": 1}),
        ("workspace/executeCommand", {"command": "redraft.unknown"}),
        ("workspace/executeCommand", {"command": "redraft.rewrite", "arguments": [5]}),
    ],
)
async def test_parameters_of_the_wrong_shape_get_an_answer(
    editor: Editor, method: str, params: Any
) -> None:
    editor.open("a.py", SOURCE)
    answer = editor.send_raw({"method": method, "params": params})
    assert (await answer).code == -32602


async def test_an_unknown_method_gets_an_answer(editor: Editor) -> None:
    assert (await editor.send_raw({"method": "redraft/nothing", "params": {}})).code == -32601


async def test_accepting_what_never_was_is_refused(editor: Editor) -> None:
    error = await _error(editor, "redraft/accept", {"jobId": "nobody"})
    assert (error.code, error.message) == (-32803, "There is no rewrite named 'nobody'.")


async def test_notifications_that_cannot_be_read_do_no_harm(
    editor: Editor, engine: ScriptedEngine
) -> None:
    editor.open("a.py", SOURCE)
    uri = editor.current
    for params in (None, {}, {"textDocument": {"uri": uri}}, {"textDocument": {"uri": 1}}):
        for method in ("didOpen", "didChange", "didClose", "nothing"):
            editor.send_raw_notification(f"textDocument/{method}x", params)
            editor.send_raw_notification(f"redraft/{method}", params)
    editor.send_raw_notification("textDocument/didChange", {"textDocument": {"uri": uri}})
    editor.send_raw_notification("textDocument/didOpen", {"textDocument": {"uri": uri}})
    engine.script(Text(ANSWER))
    await editor.reject((await editor.rewrite("rename", editor.find("size")))["jobId"])


async def test_a_lone_surrogate_in_the_file_does_no_harm(
    editor: Editor, engine: ScriptedEngine
) -> None:
    before = "s = '\ud83d'\n" + SOURCE
    editor.open("a.py", before)
    engine.script(Text(ANSWER))
    result = await editor.rewrite("rename", editor.find("size"))
    assert result["status"] == "ok", result["message"]
    await editor.accept(result["jobId"])
    assert editor.text == before.replace("size", "surface")


@pytest.mark.parametrize(
    ("text", "instruction", "code"),
    [
        ("def f():\n    return '\ud83d'\n", "rename", "bad_selection"),
        ("def f():\n    return 1\n", "rename \udc80", "bad_instruction"),
    ],
)
async def test_half_a_character_in_what_the_model_reads_is_refused(
    editor: Editor, text: str, instruction: str, code: str
) -> None:
    editor.open("a.py", text)
    where = editor.where(editor.find("return"))
    error = await _error(editor, "redraft/rewrite", {**where, "instruction": instruction})
    assert (error.code, _code(error)) == (-32803, code)


async def test_a_rewrite_can_be_repeated_under_the_same_name_after_its_end(
    editor: Editor, engine: ScriptedEngine
) -> None:
    editor.open("a.py", SOURCE)
    engine.script(Hang())
    _, answer = editor.begin_rewrite("rename", editor.find("size"), jobId="mine")
    await engine.wait_for_requests(1)
    cancelled = editor.ask("redraft/cancel", {"jobId": "mine"})[1]
    engine.script(Text(ANSWER))
    result = await editor.rewrite("rename", editor.find("size"), jobId="mine")
    assert await cancelled == {"cancelled": True}
    assert (await answer)["status"] == "cancelled"
    assert (result["jobId"], result["status"]) == ("mine", "ok")
    await editor.accept("mine")
    assert editor.text == AFTER
