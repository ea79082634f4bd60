"""Every way to stop a rewrite closes the engine's connection and leaves the buffer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.editor.editor import Editor
from tests.editor.scripted_engine import Hang, Report, ScriptedEngine, Text
from tests.lsp_server.server.test_rewrite import ANSWER, FIRST, REST, SOURCE

SLOW = (Report("prefill", 0.2), Text(FIRST), Hang(), Text(REST))


async def _begin(editor: Editor, engine: ScriptedEngine) -> tuple[str, asyncio.Task[Any]]:
    engine.script(*SLOW)
    editor.open("a.py", SOURCE)
    begun = editor.begin_rewrite("rename", editor.find("size"), jobId="mine")
    await editor.wait_for(lambda: [u for u in editor.updates if u["hunks"]])
    return begun


async def _stopped(editor: Editor, engine: ScriptedEngine) -> None:
    await engine.wait_for_disconnects(1)
    await engine.wait_until_idle()
    await editor.wait_for(lambda: editor.updates[-1]["done"])
    assert editor.updates[-1]["hunks"] == []
    assert editor.text == SOURCE
    assert editor.edits == []


async def test_cancelling_the_request_stops_the_engine(
    editor: Editor, engine: ScriptedEngine
) -> None:
    msg_id, answer = await _begin(editor, engine)
    editor.cancel_request(msg_id)
    with pytest.raises(Exception) as caught:
        await answer
    assert caught.value.code == -32800  # type: ignore[attr-defined]
    await _stopped(editor, engine)


async def test_redraft_cancel_stops_the_engine(editor: Editor, engine: ScriptedEngine) -> None:
    _, answer = await _begin(editor, engine)
    assert await editor.request("redraft/cancel", {"jobId": "mine"}) == {"cancelled": True}
    assert (await answer)["status"] == "cancelled"
    await _stopped(editor, engine)
    assert await editor.request("redraft/cancel", {"jobId": "mine"}) == {"cancelled": False}


async def test_the_cancel_command_stops_all_jobs(editor: Editor, engine: ScriptedEngine) -> None:
    _, answer = await _begin(editor, engine)
    assert await editor.command("redraft.cancel") == {"cancelled": True}
    assert (await answer)["status"] == "cancelled"
    await _stopped(editor, engine)


async def test_the_progress_button_stops_the_engine(editor: Editor, engine: ScriptedEngine) -> None:
    _, answer = await _begin(editor, engine)
    token = (await editor.wait_for(lambda: list(editor.lsp.progress_reports)))[0]
    editor.cancel_progress(token)
    assert (await answer)["status"] == "cancelled"
    await _stopped(editor, engine)
    assert editor.progress()[-1].message == "cancelled"


async def test_closing_the_document_stops_the_engine(
    editor: Editor, engine: ScriptedEngine
) -> None:
    _, answer = await _begin(editor, engine)
    editor.close()
    result = await answer
    assert (result["status"], result["message"]) == ("cancelled", "The document was closed.")
    await _stopped(editor, engine)


async def test_a_cancel_in_the_same_breath_as_the_request_is_obeyed(
    editor: Editor, engine: ScriptedEngine
) -> None:
    editor.open("a.py", SOURCE)
    for _ in range(5):
        msg_id, answer = editor.begin_rewrite("rename", editor.find("size"))
        editor.cancel_request(msg_id)
        editor.cancel_request(msg_id)
        with pytest.raises(Exception, match="cancelled"):
            await answer
    await editor.wait_for_jobs(0)


async def test_a_job_in_review_can_be_cancelled(editor: Editor, engine: ScriptedEngine) -> None:
    engine.script(Text(ANSWER))
    editor.open("a.py", SOURCE)
    result = await editor.rewrite("rename", editor.find("size"))
    assert await editor.request("redraft/cancel", {"jobId": result["jobId"]}) == {"cancelled": True}
    assert editor.updates[-1]["hunks"] == []


async def test_typing_above_shifts_the_rewrite_to_the_right_place(
    any_encoding: Editor, engine: ScriptedEngine
) -> None:
    editor = any_encoding
    _, answer = await _begin(editor, engine)
    editor.type("# 🙂\n\n", (0, 0))
    editor.type("y = 1\n", editor.find("x = area"))
    editor.type("", (0, 0), (1, 0))
    before = editor.text
    engine.release()
    result = await answer
    editor.type("import re\n", (0, 0))
    assert (await editor.accept(result["jobId"]))["applied"] is True
    assert editor.text == "import re\n" + before.replace("size", "surface")


async def test_typing_inside_while_it_is_written_makes_the_rewrite_stale(
    editor: Editor, engine: ScriptedEngine
) -> None:
    _, answer = await _begin(editor, engine)
    editor.type("0", editor.find("w * h"))
    result = await answer
    assert result["status"] == "stale"
    assert "changed while it was being rewritten" in result["message"]
    await engine.wait_for_disconnects(1)
    assert editor.text == SOURCE.replace("w * h", "0w * h")


async def test_typing_inside_during_review_makes_the_rewrite_stale(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    editor.open("a.py", SOURCE)
    result = await editor.rewrite("rename", editor.find("size"))
    editor.type("0", editor.find("w * h"))
    with pytest.raises(Exception, match="changed while it was being rewritten"):
        await editor.accept(result["jobId"])
    assert editor.updates[-1]["hunks"] == []
    assert editor.edits == []


async def test_a_hundred_fast_changes_keep_the_mirror_right(
    any_encoding: Editor, engine: ScriptedEngine
) -> None:
    editor = any_encoding
    editor.open("a.py", SOURCE)
    for count in range(50):
        editor.type(f"# {count} 🙂\r\n", (count % 7 % (count + 1), 0) if count < 3 else (0, 0))
        editor.type("é", editor.find("x = area"))
    engine.script(Text(ANSWER))
    before = editor.text
    result = await editor.rewrite("rename", editor.find("size"))
    assert (await editor.accept(result["jobId"]))["applied"] is True
    assert editor.text == before.replace("size", "surface")
