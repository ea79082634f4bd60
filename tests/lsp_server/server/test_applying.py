"""The edit's way into the buffer, with editors that are honest, slow or wrong."""

from __future__ import annotations

import pytest
from lsprotocol import types

from lsp_server.apply import NOT_FOLLOWED
from tests.editor.editor import Editor
from tests.editor.scripted_engine import CutOff, Fail, Hang, ScriptedEngine, Text
from tests.lsp_server.server.test_rewrite import AFTER, ANSWER, SOURCE


async def _titles(editor: Editor, **more: object) -> list[str]:
    return [a.title for a in await editor.code_actions(editor.find("size"), **more)]  # type: ignore[arg-type]


async def test_a_code_action_gives_one_versioned_edit(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    editor.open("a.py", SOURCE)
    editor.type("# one more version\n", (0, 0))
    actions = await editor.code_actions(editor.find("size"))
    assert [a.title for a in actions] == [
        "Add type hints",
        "Add a docstring",
        "Simplify",
        "Handle errors",
    ]
    assert actions[0].kind == "refactor.rewrite.redraft.types"
    assert {tuple(a.tags) for a in actions} == {(types.CodeActionTag.LlmGenerated,)}

    started = await editor.run_code_action(actions[1])
    assert started["jobId"].startswith("job-")
    await editor.wait_for_text("# one more version\n" + AFTER)
    await editor.wait_for_jobs(0)

    (params,) = editor.edits
    assert params.label is not None
    assert params.label.startswith("redraft: Add a docstring as the first statement inside")
    assert params.edit.changes is None
    (change,) = params.edit.document_changes or ()
    assert isinstance(change, types.TextDocumentEdit)
    assert change.text_document.version == 2
    assert "inside the body" in engine.requests[0]["messages"][-2]["content"]


async def test_a_plain_client_gets_one_edit_and_no_versions_that_it_does_not_know(
    plain: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    plain.open("a.py", SOURCE)
    actions = await plain.code_actions(plain.find("size"))
    assert all(isinstance(a, types.Command) for a in actions)
    await plain.run_code_action(actions[0])
    await plain.wait_for_text(AFTER)
    assert plain.edits[0].edit.document_changes is None
    plain.undo()
    assert plain.text == SOURCE


async def test_neovim_gets_versions_though_it_does_not_declare_them(
    neovim: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    neovim.open("a.py", SOURCE)
    actions = await neovim.code_actions(neovim.find("size"))
    assert actions[0].tags is None
    await neovim.run_code_action(actions[0])
    await neovim.wait_for_text(AFTER)
    assert neovim.edits[0].edit.document_changes is not None


async def test_diagnostics_become_fixes_of_the_function_around_them(
    editor: Editor, engine: ScriptedEngine
) -> None:
    editor.open("a.py", SOURCE + "def other():\n    return 1\n")
    line, _ = editor.find("size = w")
    span = types.Range(types.Position(line, 4), types.Position(line, 8))
    found = [types.Diagnostic(range=span, message=f"problem\n {i}") for i in range(5)]
    actions = await editor.code_actions(editor.find("other"), diagnostics=found, only=["quickfix"])
    assert [a.title for a in actions] == ["Fix: problem 0", "Fix: problem 1", "Fix: problem 2"]
    assert list(actions[1].diagnostics) == [found[1]]
    engine.script(Text(ANSWER))
    await editor.run_code_action(actions[1])
    await editor.wait_for(lambda: editor.edits)
    question = engine.requests[0]["messages"][-2]["content"]
    assert "Fix this problem in the line `size = w * h`: problem 1" in question
    assert engine.requests[0]["redraft"]["source"].startswith("def area")


@pytest.mark.parametrize(
    ("only", "count"),
    [
        (["refactor"], 4),
        (["refactor.rewrite"], 4),
        (["refactor.rewrite.redraft.docs"], 1),
        (["refactor.extract"], 0),
        (["quickfix"], 0),
        (["refactor.rewrite.redraftx"], 0),
    ],
)
async def test_only_the_kinds_that_were_asked_for_are_offered(
    editor: Editor, only: list[str], count: int
) -> None:
    editor.open("a.py", SOURCE)
    assert len(await _titles(editor, only=only)) == count


async def test_nothing_is_offered_unasked_or_where_there_is_nothing_to_rewrite(
    editor: Editor,
) -> None:
    editor.open("a.py", SOURCE)
    assert await _titles(editor, automatic=True) == []
    assert await editor.code_actions((0, 0)) == []
    editor.open("notes.txt", "one\ntwo\n", "plaintext")
    assert await editor.code_actions((0, 0)) == []
    titles = [a.title for a in await editor.code_actions((0, 0), (1, 0))]
    assert titles == ["Add a doc comment", "Simplify", "Handle errors"]


async def test_a_menu_of_an_older_version_does_nothing_and_says_so(
    editor: Editor, engine: ScriptedEngine
) -> None:
    editor.open("a.py", SOURCE)
    actions = await editor.code_actions(editor.find("size"))
    editor.type("#\n", (0, 0))
    editor.expect("The document has changed since")
    assert await editor.run_code_action(actions[0]) is None
    assert editor.told() == ["The document has changed since; try again."]
    assert engine.requests == []


async def test_typing_outside_while_the_edit_is_on_its_way_only_repeats_it(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    editor.open("a.py", SOURCE)
    result = await editor.rewrite("rename", editor.find("size"))
    editor.before_edit = lambda: editor.type("# typed\n", (0, 0))
    assert (await editor.accept(result["jobId"]))["applied"] is True
    assert editor.text == "# typed\n" + AFTER
    assert len(editor.edits) == 2


async def test_typing_inside_while_the_edit_is_on_its_way_is_kept(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    editor.open("a.py", SOURCE)
    result = await editor.rewrite("rename", editor.find("size"))
    editor.before_edit = lambda: editor.type("0", editor.find("w * h"))
    editor.expect("did not apply the edit")
    outcome = await editor.accept(result["jobId"])
    assert outcome["applied"] is False
    assert editor.text == SOURCE.replace("w * h", "0w * h")


async def test_an_edit_that_neovim_drops_silently_is_sent_again(
    neovim: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    neovim.open("a.py", SOURCE)
    result = await neovim.rewrite("rename", neovim.find("size"))
    neovim.before_edit = lambda: neovim.type("# typed\n", (0, 0))
    assert (await neovim.accept(result["jobId"]))["applied"] is True
    assert neovim.text == "# typed\n" + AFTER


async def test_an_edit_that_never_arrives_is_reported_and_can_be_tried_again(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    editor.open("a.py", SOURCE)
    result = await editor.rewrite("rename", editor.find("size"))
    editor.ignore_edits = True
    editor.expect(NOT_FOLLOWED)
    outcome = await editor.accept(result["jobId"])
    assert (outcome["applied"], outcome["message"]) == (False, NOT_FOLLOWED)
    assert editor.told() == [NOT_FOLLOWED]
    editor.ignore_edits = False
    assert (await editor.accept(result["jobId"]))["applied"] is True
    assert editor.text == AFTER


async def test_a_refused_edit_passes_the_editors_reason_on(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    editor.open("a.py", SOURCE)
    editor.refuse_edits_with = "the buffer is read-only"
    editor.expect("the buffer is read-only")
    actions = await editor.code_actions(editor.find("size"))
    await editor.run_code_action(actions[0])
    await editor.wait_for(editor.told)
    assert editor.told() == ["The editor did not apply the edit: the buffer is read-only."]
    await editor.wait_for_jobs(0)
    assert editor.text == SOURCE


async def test_a_cut_off_answer_is_never_applied(editor: Editor, engine: ScriptedEngine) -> None:
    engine.script(Text(ANSWER[:30]), CutOff())
    editor.open("a.py", SOURCE)
    editor.expect("cut off")
    actions = await editor.code_actions(editor.find("size"))
    await editor.run_code_action(actions[0])
    await editor.wait_for(editor.told)
    assert "cut off" in editor.told()[0]
    assert editor.edits == []
    engine.script(Text(ANSWER[:30]), CutOff())
    result = await editor.rewrite("rename", editor.find("size"))
    assert (result["status"], result["hunks"], result["text"]) == ("cut_off", [], ANSWER[:30])


async def test_an_answer_that_does_not_parse_is_refused_with_its_text(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Text("def area(w, h:\n    return (w\n"))
    editor.open("a.py", SOURCE)
    result = await editor.rewrite("break it", editor.find("size"))
    assert result["status"] == "refused"
    assert "does not parse" in result["message"]
    assert result["text"].startswith("def area(w, h:")
    assert result["hunks"] == []


async def test_a_command_tells_the_user_what_the_engine_said(
    editor: Editor, engine: ScriptedEngine
) -> None:
    sentence = "The function and the answer need 5,000 tokens; the model takes 4,096."
    engine.script(Fail("context_length_exceeded", sentence))
    editor.open("a.py", SOURCE)
    editor.expect(sentence)
    actions = await editor.code_actions(editor.find("size"))
    await editor.run_code_action(actions[0])
    assert (await editor.wait_for(editor.told))[0] == sentence
    await editor.wait_for_jobs(0)


async def test_accepting_a_rewrite_that_is_still_written_is_refused(
    editor: Editor, engine: ScriptedEngine
) -> None:
    engine.script(Hang(), Text(ANSWER))
    editor.open("a.py", SOURCE)
    _, answer = editor.begin_rewrite("rename", editor.find("size"), jobId="mine")
    await engine.wait_for_requests(1)
    with pytest.raises(Exception, match="still being written"):
        await editor.accept("mine")
    engine.release()
    await answer
    await editor.reject("mine")
