"""Our own engine: found by its file, started when first needed, stopped when asked.

The engine's lock decides who runs: of two that start at once, one exits with code 0 and
the other serves both clients.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from lsp_server.core import Progress, RewriteError
from lsp_server.engine_files import (
    FOLDER_VARIABLE,
    EngineRecord,
    find_record,
    output_file,
    untrusted_record,
)
from lsp_server.engine_http import Endpoint, ask_health, ask_to_stop

ENGINE_COMMAND: tuple[str, ...] = (sys.executable, "-m", "engine")
START_SECONDS = 60.0
STOP_SECONDS = 5.0
MAX_OUTPUT_BYTES = 64 * 1024

# Windows' way to start a process that outlives us; `start_new_session` is the others'.
_CREATION_FLAGS = getattr(subprocess, "DETACHED_PROCESS", 0) | getattr(
    subprocess, "CREATE_NEW_PROCESS_GROUP", 0
)
_LONGEST_PAUSE = 0.25
# Linux' `struct ucred`: process, user and group.
_PEER = struct.Struct("3i")
# Between two tries to start when another engine holds the lock but does not answer yet.
_RETRY_SECONDS = 0.5


class _Starting(NamedTuple):
    """An engine on its way up, and where in the output file its words begin."""

    process: subprocess.Popen[bytes]
    output: Path
    offset: int
    since: float


def our_version() -> str:
    """The installed version of redraft."""
    try:
        return version("redraft")
    except PackageNotFoundError:
        return "unknown"


async def ensure_engine(
    on_progress: Callable[[Progress], None], arguments: Sequence[str] = ()
) -> Endpoint:
    """Find the running engine of our version, or start one and wait until it answers.

    Args:
        on_progress: hears `starting` when an engine has to be started.
        arguments: options of `python -m engine`, for an engine that is started here.

    Raises:
        RewriteError: `engine_missing` (not installed) or `engine_failed`.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + START_SECONDS
    starting: _Starting | None = None
    asked: set[int] = set()
    pause = 0.01
    while True:
        record = find_record()
        answers = True
        health: Mapping[str, Any] | None = None
        if record is not None:
            try:
                health = await ask_health(record.endpoint)
            except TimeoutError:
                answers = False
        if record is not None and health is not None and health.get("status") != "stopping":
            if health.get("version") == our_version():
                return record.endpoint
            if record.pid not in asked:
                asked.add(record.pid)
                on_progress(Progress("starting", None, "replacing another version"))
                await ask_to_stop(record.endpoint)
        if health is None and answers and _may_start(starting, clock()):
            if starting is None:
                on_progress(Progress("starting"))
            starting = _start(arguments, clock())
        if clock() > deadline:
            raise _too_late(record, answers)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _may_start(starting: _Starting | None, now: float) -> bool:
    """Whether no start of ours is under way.

    Raises:
        RewriteError: ours has failed.
    """
    if starting is None:
        return True
    code = starting.process.poll()
    if code is None:
        return False
    if code != 0:
        raise RewriteError("engine_failed", _failure(starting, code))
    return now - starting.since > _RETRY_SECONDS


def _start(arguments: Sequence[str], now: float) -> _Starting:
    _check_installed()
    try:
        path = output_file()
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise RewriteError(
            "engine_failed",
            f"The engine's output cannot be written to {error.filename} ({error.strerror}); "
            f"set {FOLDER_VARIABLE} to a folder of your own.",
        ) from None
    try:
        if os.fstat(descriptor).st_size > MAX_OUTPUT_BYTES:
            os.ftruncate(descriptor, 0)
        process = subprocess.Popen(
            [*ENGINE_COMMAND, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            cwd=_home(),
            # The home folder must not shadow our packages.
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            start_new_session=True,
            creationflags=_CREATION_FLAGS,
        )
        offset = os.fstat(descriptor).st_size
    except OSError as error:
        raise RewriteError("engine_failed", f"The engine cannot be started: {error}.") from None
    finally:
        os.close(descriptor)
    # Somebody has to wait for a child, or it stays as a zombie until we exit.
    threading.Thread(target=process.wait, name="engine-reaper", daemon=True).start()
    return _Starting(process, path, offset, now)


def _home() -> str:
    """Where a process may stay without keeping anybody from removing a project's folder."""
    home = os.path.expanduser("~")
    return home if os.path.isdir(home) else tempfile.gettempdir()


def _check_installed() -> None:
    for name in ("engine", "torch"):
        if importlib.util.find_spec(name) is None:
            raise RewriteError(
                "engine_missing",
                "The engine is not installed here; run pip install 'redraft[engine]', "
                "or set engineUrl to a server that is running.",
            )


def _failure(starting: _Starting, code: int) -> str:
    last = ""
    with contextlib.suppress(OSError), starting.output.open("rb") as file:
        file.seek(max(starting.offset, starting.output.stat().st_size - MAX_OUTPUT_BYTES))
        lines = file.read(MAX_OUTPUT_BYTES).decode("utf-8", "replace").splitlines()
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    reason = f": {last[:300]}" if last else "."
    return f"The engine ended while it was starting (exit code {code}){reason}"


def _too_late(record: EngineRecord | None, answers: bool) -> RewriteError:
    if record is not None and not answers:
        return RewriteError(
            "engine_failed",
            f"The engine (process {record.pid}) does not answer; "
            "end it with `redraft engine stop` and try again.",
        )
    path = untrusted_record()
    if record is None and path is not None:
        return RewriteError(
            "engine_failed",
            f"An engine seems to run, but other users can change {path}, so it is not trusted; "
            "end that engine, remove the file and try again.",
        )
    return RewriteError(
        "engine_failed",
        f"The engine did not come up within {START_SECONDS:.0f} seconds; try again.",
    )


async def stop_engine() -> bool:
    """Stop the running engine; False when there was none.

    One that does not answer is ended by its process number, first kindly.

    Raises:
        RewriteError: `engine_failed` when it is still there after all.
    """
    record = find_record()
    if record is None:
        return False
    try:
        if await ask_health(record.endpoint) is None:
            return False
    except TimeoutError:
        pass
    await ask_to_stop(record.endpoint)
    if await _is_gone(record):
        return True
    if not _is_listener(record):
        raise RewriteError(
            "engine_failed",
            f"The engine does not answer, and process {record.pid} is not it; "
            "end it by hand, or restart the machine.",
        )
    for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(record.pid, number)
        if await _is_gone(record):
            return True
    raise RewriteError("engine_failed", f"The engine (process {record.pid}) cannot be ended.")


def _is_listener(record: EngineRecord) -> bool:
    """Whether the recorded process listens, as far as can be known: a number can be reused."""
    if not hasattr(socket, "SO_PEERCRED") or not record.endpoint.url.startswith("unix:"):
        return True
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.settimeout(1.0)
            door.connect(record.endpoint.url.removeprefix("unix:"))
            peer = door.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    except TimeoutError:
        return True  # its queue of connections is full
    except OSError:
        return False
    return _PEER.unpack(peer)[0] == record.pid


async def _is_gone(record: EngineRecord) -> bool:
    clock = asyncio.get_running_loop().time
    deadline = clock() + STOP_SECONDS
    pause = 0.01
    while clock() < deadline:
        try:
            if await ask_health(record.endpoint, 0.5) is None:
                return True
        except TimeoutError:
            pass
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return False
