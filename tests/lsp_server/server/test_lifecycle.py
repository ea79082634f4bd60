"""The process's life: what it answers when, and that it always ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from pygls.exceptions import JsonRpcException

from tests.editor.clients import VS_CODE
from tests.editor.editor import SERVER, Editor
from tests.editor.scripted_engine import Hang, ScriptedEngine, Text
from tests.lsp_server.server.test_rewrite import ANSWER, FIRST, SOURCE

SECRET = "a_word_that_stands_only_in_the_source"


@asynccontextmanager
async def _raw() -> AsyncIterator[Editor]:
    """A server that nobody has spoken to yet."""
    editor = Editor(VS_CODE)
    await editor.start()
    try:
        yield editor
    finally:
        await editor.stop()


async def _ends(editor: Editor, within: float) -> int:
    """The exit code; fails when the process takes longer than so many seconds."""
    return await asyncio.wait_for(editor.process.wait(), within)


async def test_requests_out_of_turn_are_refused_and_the_exit_code_is_zero() -> None:
    async with _raw() as editor:
        early = await editor.send_raw({"method": "redraft/status", "params": {}})
        assert early.code == -32002
        editor.open("early.py", SOURCE)
        result = await editor.initialize()
        assert result.capabilities.experimental == {"redraft": {"version": 1}}
        assert result.capabilities.execute_command_provider is not None
        assert list(result.capabilities.execute_command_provider.commands) == [
            "redraft.rewrite",
            "redraft.cancel",
        ]
        again = await editor.send_raw({"method": "initialize", "params": {"capabilities": {}}})
        assert again.code == -32600
        editor.send_bytes(b"Content-Length: 4\r\n\r\nnope")
        editor.send_bytes(b"Content-Length: 2\r\n\r\n[]")
        assert await editor.jobs() == []
        await editor.request("shutdown", None)
        late = await editor.send_raw({"method": "redraft/status", "params": {}})
        assert late.code == -32600
        editor.lsp.exit(None)
        assert await _ends(editor, 5) == 0


async def test_exit_without_shutdown_is_exit_code_one() -> None:
    async with _raw() as editor:
        await editor.initialize()
        editor.lsp.exit(None)
        assert await _ends(editor, 5) == 1


async def test_options_of_the_wrong_type_are_named_once_and_the_default_is_used() -> None:
    async with Editor.started(VS_CODE, options={"model": 7, "draft": "x", "odd": 1}) as editor:
        editor.expect("the default is used")
        await editor.wait_for(editor.told)
        assert editor.told() == [
            "redraft: `model` must be a text, `draft` must be true or false; the default is used."
        ]


async def test_options_reach_the_engine(engine: ScriptedEngine) -> None:
    options = {"model": "big", "draftModel": "small", "draft": False, "engineUrl": engine.url}
    async with Editor.started(VS_CODE, options=options) as editor:
        engine.script(Text(ANSWER))
        editor.open("a.py", SOURCE)
        await editor.reject((await editor.rewrite("rename", editor.find("size")))["jobId"])
    body = engine.requests[0]
    assert body["model"] == "big"
    assert body["redraft"]["draft_model"] == "small"
    assert body["redraft"]["draft"] is False


async def test_the_end_of_stdin_ends_the_server_while_the_engine_writes(
    engine: ScriptedEngine,
) -> None:
    editor = Editor(VS_CODE)
    await editor.start(engine)
    try:
        await editor.initialize()
        engine.script(Text(FIRST), Hang())
        editor.open("a.py", SOURCE)
        _, answer = editor.begin_rewrite("rename", editor.find("size"))
        await editor.wait_for(lambda: [u for u in editor.updates if u["hunks"]])
        assert editor.process.stdin is not None
        editor.process.stdin.close()
        assert await _ends(editor, 2) == 1
        await engine.wait_for_disconnects(1)
        with contextlib.suppress(RuntimeError, JsonRpcException):
            await answer
    finally:
        await editor.stop()


async def test_no_source_text_is_logged(engine: ScriptedEngine) -> None:
    editor = Editor(VS_CODE)
    await editor.start(engine)
    try:
        await editor.initialize()
        engine.script(Text(f"def area(:\n    {SECRET}_2\n"))
        editor.open("a.py", f"# {SECRET}\n{SOURCE}")
        editor.type(SECRET, (0, 0))
        await editor.rewrite(f"use {SECRET}", editor.find("size"))
        bad = {"textDocument": {"uri": 1, "text": SECRET, "version": 1, "languageId": "x"}}
        editor.send_raw_notification("textDocument/didOpen", bad)
        await editor.send_raw({"method": "textDocument/codeAction", "params": {"x": SECRET}})
        await editor.check()
        await editor.shut_down()
    finally:
        await editor.stop()
    log = "".join(editor.stderr)
    assert "job-1: began" in log
    assert SECRET not in log


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's pidfd_open")
async def test_the_server_ends_when_its_client_is_killed() -> None:
    # The client in between starts the server, says where it is, and is killed.
    client = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([{SERVER!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "print(p.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", client, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    server = int(await process.stdout.readline())
    process.kill()
    await process.wait()
    try:
        await asyncio.wait_for(_end_of(server), 5)
    except asyncio.TimeoutError:
        os.kill(server, signal.SIGKILL)
        pytest.fail("the server outlived its client")


_KILLED_CLIENT = """
import json, subprocess, sys, time
server, text = sys.argv[1:]
p = subprocess.Popen([server], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def send(method, params, **more):
    body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
    p.stdin.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    p.stdin.flush()
uri = "file:///a.py"
item = {"uri": uri, "languageId": "python", "version": 1, "text": text}
send("initialize", {"processId": None, "capabilities": {}}, id=1)
send("initialized", {})
send("textDocument/didOpen", {"textDocument": item})
where = {"textDocument": {"uri": uri}, "position": {"line": 4, "character": 5}}
send("redraft/rewrite", {**where, "instruction": "rename"}, id=2)
print(p.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's pidfd_open")
async def test_killing_the_editor_in_the_middle_of_a_stream_ends_the_server_within_two_seconds(
    engine: ScriptedEngine,
) -> None:
    engine.script(Text(FIRST), Hang())
    client = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _KILLED_CLIENT, SERVER, SOURCE),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "REDRAFT_ENGINE_URL": engine.url},
    )
    assert client.stdout is not None
    server = int(await client.stdout.readline())
    try:
        await engine.wait_for_requests(1)
        assert engine.active == 1
        client.kill()
        await client.wait()
        await asyncio.wait_for(_end_of(server), 2)
    except asyncio.TimeoutError:
        os.kill(server, signal.SIGKILL)
        pytest.fail("the server outlived its client")
    await engine.wait_for_disconnects(1)


async def _end_of(process_id: int) -> None:
    """Wait for the end of a process that is not our child."""
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def test_the_server_ends_when_the_process_of_its_client_is_gone() -> None:
    # As with an editor behind a wrapper that keeps our stdin open.
    with tempfile.TemporaryFile() as nothing:
        client = await asyncio.create_subprocess_exec("sleep", "60", stdin=nothing)
    async with _raw() as editor:
        params = {"processId": client.pid, "capabilities": {}}
        assert await editor.send_raw({"method": "initialize", "params": params}) is None
        client.kill()
        await client.wait()
        assert await _ends(editor, 10) == 1


async def test_nothing_that_is_printed_can_reach_the_client() -> None:
    program = (
        "import os, sys\n"
        "from lsp_server.main import take_over_stdio\n"
        "_, output = take_over_stdio()\n"
        "print('by print', flush=True)\n"
        "os.write(1, b'by descriptor')\n"
        "assert sys.stdin.read() == ''\n"
        "os.write(output, b'protocol')\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate(json.dumps({}).encode())
    assert out == b"protocol"
    assert b"by print" in err
    assert b"by descriptor" in err
