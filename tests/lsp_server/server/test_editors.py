"""What a person does in each editor that is known, from the menu to undo."""

from __future__ import annotations

import pytest

from tests.editor.clients import ALL, EGLOT, HELIX, ZED, Client
from tests.editor.editor import Editor
from tests.editor.scripted_engine import Hang, ScriptedEngine, Text
from tests.lsp_server.server.test_rewrite import ANSWER, FIRST, REST, SOURCE

TEXT = 'name = "🙂 é"\r\n' + SOURCE.replace("\n", "\r\n")
AFTER = TEXT.replace("size", "surface")
TYPED = "x = '🎉'\r\n"


@pytest.mark.parametrize("client", ALL, ids=lambda client: client.name)
async def test_a_function_is_rewritten_while_typing_goes_on_above_it_and_is_undone(
    client: Client, engine: ScriptedEngine
) -> None:
    engine.script(Text(FIRST), Hang(), Text(REST))
    engine.script(Text(ANSWER))
    async with Editor.started(client, engine) as editor:
        editor.open("a.py", TEXT)
        actions = await editor.code_actions(editor.find("size"))
        await editor.run_code_action(actions[0])
        await engine.wait_for_requests(1)
        editor.type(TYPED, (0, 0))
        assert len(await editor.jobs()) == 1
        engine.release()
        await editor.wait_for(lambda: editor.edits)
        await editor.wait_for_jobs(0)
        assert editor.text == TYPED + AFTER
        assert len(editor.edits) == 1

        # One step takes the rewrite back, the next one the typing.
        editor.undo()
        assert editor.text == TYPED + TEXT
        editor.undo()
        assert editor.text == TEXT

        # And again, by hand: hunks are shown only where they are drawn.
        engine.hold()
        result = await editor.rewrite("rename", editor.find("size"))
        assert (await editor.accept(result["jobId"]))["applied"] is True
        assert editor.text == AFTER
        draws = "experimental" in client.capabilities
        assert bool(editor.updates) is draws


@pytest.mark.parametrize("client", [HELIX, EGLOT, ZED], ids=lambda client: client.name)
async def test_edits_carry_a_version_wherever_the_editor_would_check_it(
    client: Client, engine: ScriptedEngine
) -> None:
    engine.script(Text(ANSWER))
    async with Editor.started(client, engine) as editor:
        editor.open("a.py", TEXT)
        result = await editor.rewrite("rename", editor.find("size"))
        # Typing overtakes the edit: with a version it is sent again, without it is not needed.
        overtaken = client.version_check != "none"
        if overtaken:
            editor.before_edit = lambda: editor.type(TYPED, (0, 0))
        assert (await editor.accept(result["jobId"]))["applied"] is True
        assert editor.text == (TYPED + AFTER if overtaken else AFTER)
        assert len(editor.edits) == 1 + overtaken
        assert all((e.edit.document_changes is not None) is overtaken for e in editor.edits)
