"""Starts fake engines and talks to them, for tests with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from lsp_server import engine_process

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 20.0


def wait_until(condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """Wait for something in another process; fails loudly when it never comes."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.005)
    return value


def engine_environment(runtime: Path) -> dict[str, str]:
    return {**os.environ, "REDRAFT_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT)}


def fake_command(*options: str) -> list[str]:
    return [sys.executable, "-m", "tests.engine.server.fake_engine", *options]


class EngineProcess:
    """A fake engine of its own runtime folder."""

    def __init__(self, runtime: Path, *options: str) -> None:
        self.runtime = runtime
        self.process = subprocess.Popen(
            fake_command(*options),
            cwd=ROOT,
            env=engine_environment(runtime),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def record(self) -> dict[str, Any] | None:
        """What engine.json says, once it is that of this process."""
        with contextlib.suppress(OSError, ValueError):
            record = json.loads((self.runtime / "engine.json").read_text())
            if record["pid"] == self.pid:
                return record
        return None

    def ready(self) -> EngineProcess:
        wait_until(lambda: self.record() or self.process.poll() is not None, "engine.json")
        assert self.process.poll() is None, self.output()
        return self

    def output(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def wait(self, seconds: float = SECONDS) -> int:
        return self.process.wait(seconds)

    def client(self) -> httpx.Client:
        record = self.record()
        assert record is not None
        if record["url"].startswith("unix:"):
            transport = httpx.HTTPTransport(uds=record["url"].removeprefix("unix:"))
            return httpx.Client(transport=transport, base_url="http://engine", timeout=SECONDS)
        return httpx.Client(
            base_url=record["url"],
            trust_env=False,
            timeout=SECONDS,
            headers={"Authorization": f"Bearer {record['token']}"},
        )

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def running_engine(runtime: Path, *options: str) -> Iterator[EngineProcess]:
    engine = EngineProcess(runtime, *options)
    try:
        yield engine.ready()
    finally:
        engine.end()


@contextlib.contextmanager
def engine_of_our_own(runtime: Path, monkeypatch) -> Iterator[Path]:
    """Make the fake engine the one that is started on demand; nothing that was started stays."""
    monkeypatch.setenv("REDRAFT_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # Should a test lose one all the same, it ends by itself.
    command = tuple(fake_command("--idle-seconds", "20"))
    monkeypatch.setattr(engine_process, "ENGINE_COMMAND", command)
    real_start = engine_process._start
    started = []

    def recorded_start(*arguments):
        started.append(real_start(*arguments))
        return started[-1]

    monkeypatch.setattr(engine_process, "_start", recorded_start)
    yield runtime
    asyncio.run(engine_process.stop_engine())
    for starting in started:
        # One that lost the race for the lock may come to it only now.
        starting.process.kill()
        wait_until(lambda one=starting: one.process.poll() is not None, "its end")


def body(*steps: list, stream: bool = False, **keys: Any) -> dict[str, Any]:
    """A request whose script is `steps`."""
    return {
        "model": "fake-one",
        "messages": [{"role": "user", "content": json.dumps(list(steps))}],
        "stream": stream,
        "redraft": {},
        **keys,
    }


def events_of(text: str) -> list[Any]:
    """The events of a whole stream, read the plain way; `[DONE]` is kept as a text."""
    events = []
    for block in text.split("\n\n"):
        if block.startswith("data: "):
            data = block.removeprefix("data: ")
            events.append(data if data == "[DONE]" else json.loads(data))
    return events


def metric(client: httpx.Client, name: str) -> float:
    """One value of /metrics; 0 when it is not there yet."""
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[-1])
    return 0.0
