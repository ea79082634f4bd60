"""Finding, starting, replacing and stopping our own engine, with real processes."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lsp_server import engine_files, engine_process
from lsp_server.core import Progress, RewriteError
from lsp_server.engine_files import find_record
from lsp_server.engine_process import ensure_engine, stop_engine
from tests.engine.server.conftest import runtime  # noqa: F401
from tests.engine.server.process import (
    ROOT,
    engine_of_our_own,
    fake_command,
    running_engine,
    wait_until,
)


@pytest.fixture
def our_engine(runtime, monkeypatch):  # noqa: F811
    with engine_of_our_own(runtime, monkeypatch) as folder:
        yield folder


class Heard(list):
    """Remembers the progress that was reported."""

    def __call__(self, progress: Progress) -> None:
        self.append(progress)


def command(monkeypatch, script: str) -> None:
    monkeypatch.setattr(engine_process, "ENGINE_COMMAND", (sys.executable, "-c", script))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def failure(*arguments: str) -> RewriteError:
    with pytest.raises(RewriteError) as caught:
        await ensure_engine(Heard(), arguments)
    return caught.value


async def test_the_engine_is_started_once_and_then_found(our_engine):
    heard = Heard()
    endpoint = await ensure_engine(heard)
    assert endpoint.url == f"unix:{our_engine}/engine.sock"
    assert heard == [Progress("starting")]
    record = find_record()
    assert await ensure_engine(heard) == endpoint
    assert heard == [Progress("starting")]
    assert find_record() == record
    # In a session of its own: closing the editor's terminal does not end it.
    assert os.getsid(record.pid) == record.pid
    link = Path(f"/proc/{record.pid}/cwd")
    assert not link.is_symlink() or link.readlink() == Path.home().resolve()  # noqa: ASYNC240


async def test_clients_that_start_at_once_share_one_engine(our_engine):
    endpoints = await asyncio.gather(*(ensure_engine(Heard()) for _ in range(3)))
    assert len(set(endpoints)) == 1


async def test_processes_that_start_at_once_share_one_engine(our_engine):
    script = (
        "import asyncio, sys\n"
        "from lsp_server import engine_process\n"
        f"engine_process.ENGINE_COMMAND = {tuple(fake_command())!r}\n"
        "asyncio.run(engine_process.ensure_engine(lambda progress: None))\n"
        "from lsp_server.engine_files import find_record\n"
        "print(find_record().pid)\n"
    )
    clients = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, stdout=subprocess.PIPE, cwd=ROOT
        )
        for _ in range(2)
    ]
    outputs = [(await client.communicate())[0].split() for client in clients]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) == 1


async def test_options_reach_the_engine(our_engine):
    await ensure_engine(Heard(), ["--tcp"])
    record = find_record()
    assert record.endpoint.url.startswith("http://127.0.0.1:")
    assert record.endpoint.token


async def test_an_engine_of_another_version_is_replaced(our_engine, monkeypatch):
    await ensure_engine(Heard())
    old = find_record()
    # We are the newer ones now, and so is what we start.
    monkeypatch.setattr(engine_process, "our_version", lambda: "99.0")
    starter = (
        "import sys, runpy, engine.server.app as app, engine.server.lifecycle as life\n"
        "app.engine_version = life.engine_version = lambda: '99.0'\n"
        "runpy.run_module('tests.engine.server.fake_engine', run_name='__main__')\n"
    )
    command(monkeypatch, starter)
    heard = Heard()
    await ensure_engine(heard)
    new = find_record()
    assert (new.version, old.version != "99.0", new.pid != old.pid) == ("99.0", True, True)
    assert heard == [Progress("starting", None, "replacing another version"), Progress("starting")]
    wait_until(lambda: not alive(old.pid), "the end of the old engine")


async def test_a_dead_engines_record_does_not_mislead(our_engine):
    await ensure_engine(Heard())
    old = find_record()
    os.kill(old.pid, signal.SIGKILL)
    wait_until(lambda: not alive(old.pid), "its end")
    assert find_record() == old
    await ensure_engine(Heard())
    assert find_record().pid != old.pid


async def test_an_engine_that_fails_to_start_is_reported_with_its_last_words(
    our_engine, monkeypatch
):
    command(monkeypatch, "import sys; print('before'); sys.exit('ImportError: no such library')")
    error = await failure()
    assert (error.code, error.message) == (
        "engine_failed",
        "The engine ended while it was starting (exit code 1): ImportError: no such library",
    )


async def test_the_last_words_are_those_of_this_start_not_of_an_earlier_one(
    our_engine, monkeypatch
):
    command(monkeypatch, "import sys; sys.exit('first')")
    await failure()
    command(monkeypatch, "import os; os._exit(3)")
    assert (await failure()).message == ("The engine ended while it was starting (exit code 3).")


async def test_the_output_file_is_private_and_stays_small(our_engine, monkeypatch):
    command(monkeypatch, "import sys; sys.exit('x' * 50_000)")
    for _ in range(4):
        await failure()
    status = (our_engine / "engine.out").stat()
    assert status.st_mode & 0o777 == 0o600
    assert status.st_size <= engine_process.MAX_OUTPUT_BYTES + 50_001


async def test_an_engine_that_cannot_be_run_at_all_is_reported(our_engine, monkeypatch):
    monkeypatch.setattr(engine_process, "ENGINE_COMMAND", ("/no/such/python",))
    assert (await failure()).code == "engine_failed"


async def test_an_engine_that_never_answers_is_given_up(our_engine, monkeypatch):
    monkeypatch.setattr(engine_process, "START_SECONDS", 0.4)
    command(monkeypatch, "import sys; sys.stdin.read(); import signal; signal.pause()")
    started = []
    real = engine_process._start
    monkeypatch.setattr(
        engine_process, "_start", lambda *args: started.append(real(*args)) or started[-1]
    )
    error = await failure()
    assert error.code == "engine_failed"
    assert "did not come up" in error.message
    assert len(started) == 1
    started[0].process.kill()


async def test_a_missing_engine_is_said_with_the_way_to_install_it(our_engine, monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else real(name)
    )
    error = await failure()
    assert error.code == "engine_missing"
    assert "pip install 'redraft[engine]'" in error.message
    assert not (our_engine / "engine.out").exists()


async def test_a_running_engine_is_used_where_none_could_be_started(our_engine, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with running_engine(our_engine) as engine:
        await ensure_engine(Heard())
        assert find_record().pid == engine.pid


async def test_stopping_says_whether_there_was_one(our_engine):
    assert not await stop_engine()
    await ensure_engine(Heard())
    assert await stop_engine()
    assert not await stop_engine()


async def test_an_engine_that_does_not_answer_is_ended_by_its_number(our_engine, monkeypatch):
    monkeypatch.setattr(engine_process, "STOP_SECONDS", 0.3)
    with running_engine(our_engine) as engine:
        os.kill(engine.pid, signal.SIGSTOP)
        monkeypatch.setattr(engine_process, "START_SECONDS", 0.3)
        error = await failure()
        assert f"(process {engine.pid}) does not answer" in error.message
        assert await stop_engine()
        assert engine.wait() == -signal.SIGKILL


@pytest.mark.skipif(not hasattr(socket, "SO_PEERCRED"), reason="sockets do not tell their owner")
async def test_a_process_that_got_the_engines_number_is_never_ended(our_engine, monkeypatch):
    monkeypatch.setattr(engine_process, "STOP_SECONDS", 0.1)
    other = await asyncio.create_subprocess_exec(
        sys.executable, "-c", "input()", stdin=subprocess.PIPE
    )
    our_engine.mkdir(mode=0o700)
    path = our_engine / "engine.sock"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
            silent.bind(str(path))
            silent.listen()
            record = {"url": f"unix:{path}", "token": None, "pid": other.pid, "version": "1"}
            file = our_engine / "engine.json"
            file.touch(mode=0o600)
            file.write_text(json.dumps(record))
            with pytest.raises(RewriteError, match=f"process {other.pid} is not it"):
                await stop_engine()
        assert other.returncode is None
    finally:
        await other.communicate(b"\n")
    assert other.returncode == 0


async def test_an_engine_whose_record_others_can_change_is_named(our_engine, monkeypatch):
    monkeypatch.setattr(engine_process, "START_SECONDS", 1.0)
    with running_engine(our_engine):
        (our_engine / "engine.json").chmod(0o666)
        error = await failure()
    assert error.message.startswith("An engine seems to run, but other users can change ")
    assert str(our_engine / "engine.json") in error.message


async def test_a_folder_that_cannot_be_made_is_reported_with_the_way_out(monkeypatch):
    monkeypatch.setenv("REDRAFT_RUNTIME_DIR", "/dev/null/run")
    error = await failure()
    assert error.message == (
        "The engine's output cannot be written to /dev/null/run (Not a directory); "
        "set REDRAFT_RUNTIME_DIR to a folder of your own."
    )


def test_a_home_that_cannot_be_written_costs_only_the_engines_words(monkeypatch):
    monkeypatch.delenv("REDRAFT_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(engine_files.platformdirs, "user_log_dir", lambda *_, **__: "/dev/null/x")
    assert engine_files.output_file() == Path(os.devnull)


@pytest.fixture
def record_file(runtime, monkeypatch):  # noqa: F811
    monkeypatch.setenv("REDRAFT_RUNTIME_DIR", str(runtime))
    runtime.mkdir(mode=0o700)
    path = runtime / "engine.json"
    path.touch(mode=0o600)
    return path


GOOD = {"url": "unix:/x/engine.sock", "token": None, "pid": 1, "version": "1"}


def test_a_record_that_others_could_have_written_is_not_believed(record_file):
    record_file.write_text(json.dumps(GOOD))
    assert find_record() is not None
    record_file.chmod(0o620)
    assert find_record() is None
    record_file.chmod(0o600)
    record_file.parent.chmod(0o777)
    assert find_record() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{",
        "[" * 50_000,
        json.dumps({**GOOD, "url": "http://example.org"}),
        json.dumps({**GOOD, "url": 5}),
        json.dumps({**GOOD, "pid": "1"}),
        json.dumps({**GOOD, "token": 7}),
        json.dumps({**GOOD, "padding": "x" * 100_000}),
    ],
)
def test_a_record_that_cannot_be_read_counts_as_none(record_file, text):
    record_file.write_text(text)
    assert find_record() is None


async def test_something_else_at_the_old_address_is_no_engine(our_engine):
    """The port of an engine that has gone may belong to anybody by now."""

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    our_engine.mkdir(mode=0o700)
    stale = our_engine / "engine.json"
    stale.write_text(json.dumps({**GOOD, "url": f"http://127.0.0.1:{port}", "token": "t"}))
    stale.chmod(0o600)
    async with listener:
        endpoint = await ensure_engine(Heard())
    assert endpoint.url.startswith("unix:")


def test_the_client_side_imports_neither_torch_nor_the_engine():
    script = (
        "import sys, lsp_server.engine_client, redraft.commands.engine\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('torch', 'engine', 'drafters')])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, cwd=ROOT)
    assert result.stdout.strip() == b"[]", result.stderr
