"""The real 1.5B model behind the language server: a short function, from request to undo."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from lsp_server.engine_process import ensure_engine
from tests.editor.clients import VS_CODE
from tests.editor.editor import Editor

SOURCE = (
    "import math\r\n\r\n\r\n"
    "def norm(vec):\r\n"
    '    """Length of a vector. 😀"""\r\n'
    "    total = 0.0\r\n"
    "    for part in vec:\r\n"
    "        total += part * part\r\n"
    "    return math.sqrt(total)\r\n\r\n\r\n"
    "print(norm([3, 4]))\r\n"
)
# Loads 1.5 GB, on two cores that others use too.
SECONDS = 600.0

pytestmark = pytest.mark.model


@pytest_asyncio.fixture(loop_scope="session")
async def editor() -> AsyncIterator[Editor]:
    # Not tmp_path: a socket's path has at most about 100 characters.
    with tempfile.TemporaryDirectory(prefix="rd-") as runtime:
        environment = {**os.environ, "REDRAFT_RUNTIME_DIR": runtime}
        async with Editor.started(VS_CODE, environment=environment) as editor:
            editor.open("norm.py", SOURCE)
            yield editor
            await _stop_engine(runtime)


async def _stop_engine(runtime: str) -> None:
    from lsp_server.engine_http import ask_to_stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDRAFT_RUNTIME_DIR", runtime)
        await ask_to_stop(await ensure_engine(lambda progress: None))


async def test_a_short_function_is_rewritten_streamed_accepted_and_undone(editor: Editor) -> None:
    async def rewrite(**more: object) -> dict:
        instruction = "Rename the variable `total` to `squares`."
        _, answer = editor.begin_rewrite(instruction, editor.find("total"), **more)
        return await asyncio.wait_for(answer, SECONDS)

    plain = await rewrite(draft=False, jobId="plain")
    await editor.reject("plain")
    editor.updates.clear()
    drafted = await rewrite(jobId="drafted")
    assert drafted["status"] == "ok"
    assert drafted["text"] == plain["text"]
    assert drafted["stats"]["passes"] * 2 < plain["stats"]["passes"]
    assert editor.text == SOURCE
    assert any(update["hunks"] and not update["done"] for update in editor.updates)

    await editor.accept("drafted")
    assert editor.text == SOURCE.replace("total", "squares")
    editor.undo()
    assert editor.text == SOURCE
    await editor.reset()
