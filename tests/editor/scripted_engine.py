"""An engine that follows a script: docs/engine-api.md over a Unix socket, no model.

It runs in the test's own event loop, so that a test can wait for what the engine sees:
a request, a closed connection. One script is used up for each generation; without a
script the answer is the source unchanged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

WAIT_SECONDS = 10.0


class Text(NamedTuple):
    """A piece of the answer, sent as one chunk."""

    text: str


class Report(NamedTuple):
    """Progress before the first token."""

    phase: str
    fraction: float | None = None
    detail: str = ""


class Fail(NamedTuple):
    """An error: as the HTTP status where nothing was sent yet, else inside the stream."""

    code: str
    message: str
    status: int = 400


class Hang(NamedTuple):
    """Send nothing until the test calls `release`."""


class Die(NamedTuple):
    """Drop the connection as a killed process does."""


class CutOff(NamedTuple):
    """End with finish_reason `length`."""


Step = Text | Report | Fail | Hang | Die | CutOff

STATS = {"tokens": 12, "tokens_per_second": 23.4, "passes": 3, "tokens_per_pass": 4.0}


class ScriptedEngine:
    def __init__(self, folder: Path) -> None:
        self.path = str(folder / "engine.sock")
        self.requests: list[dict[str, Any]] = []
        self.disconnects = 0
        self.stats: dict[str, Any] = dict(STATS)
        self._scripts: deque[tuple[Step, ...]] = deque()
        self._released = asyncio.Event()
        self._changed = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"unix:{self.path}"

    @property
    def active(self) -> int:
        """Generations whose connection is open."""
        return len(self._open)

    def script(self, *steps: Step) -> None:
        self._scripts.append(steps)

    def release(self) -> None:
        """Let all go on that hang."""
        self._released.set()

    def hold(self) -> None:
        """From now on, let hang again."""
        self._released.clear()

    async def __aenter__(self) -> ScriptedEngine:
        self._server = await asyncio.start_unix_server(self._connection, self.path)
        os.chmod(self.path, 0o600)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._released.set()
        for writer in list(self._open):
            writer.transport.abort()
        if self._server is not None:
            self._server.close()

    def reset(self) -> None:
        """Forget all requests and scripts; nothing may be open or left."""
        left, opened = len(self._scripts), len(self._open)
        self._scripts.clear()
        self.requests.clear()
        self.disconnects = 0
        self._released.clear()
        assert opened == 0, "a generation is still open"
        assert left == 0, "a script was never asked for"

    async def wait_for_requests(self, count: int) -> dict[str, Any]:
        """Wait for the n-th generation and return its body."""
        await self._wait(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    async def wait_for_disconnects(self, count: int) -> None:
        """Wait until so many generations were closed by the client before their end."""
        await self._wait(lambda: self.disconnects >= count)

    async def wait_until_idle(self) -> None:
        """Wait until no generation is open."""
        await self._wait(lambda: not self._open)

    async def _wait(self, holds: Any) -> None:
        async with self._changed:
            await asyncio.wait_for(self._changed.wait_for(holds), WAIT_SECONDS)

    async def _note(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one_request(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one_request(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (x.partition(":") for x in lines) if k}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        method, path, _ = first.split(" ", 2)
        if method == "GET" and path.endswith("/healthz"):
            health = {"status": "busy" if self.active else "idle", "model": "scripted"}
            _send_json(writer, 200, health)
            return True
        if method == "POST" and path.endswith("/chat/completions"):
            await self._generation(json.loads(body), reader, writer)
            return False
        _send_json(writer, 404, {"error": {"message": "no such path", "code": "invalid_request"}})
        return True

    async def _generation(
        self, body: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        default = (Text(body.get("redraft", {}).get("source", "")),)
        # Warming has nothing to say; it uses up a script only to hang.
        warming = body.get("max_tokens") == 0
        if warming and not (self._scripts and self._scripts[0] == (Hang(),)):
            steps: tuple[Step, ...] = ()
        else:
            steps = self._scripts.popleft() if self._scripts else default
        self.requests.append(body)
        self._open.add(writer)
        await self._note()
        answer = asyncio.create_task(self._answer(steps, writer))
        gone = asyncio.create_task(reader.read(1))
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                self.disconnects += 1
        finally:
            for task in (answer, gone):
                task.cancel()
            with contextlib.suppress(BaseException):
                await asyncio.gather(answer, gone, return_exceptions=True)
            self._open.discard(writer)
            await self._note()

    async def _answer(self, steps: tuple[Step, ...], writer: asyncio.StreamWriter) -> None:
        stream = _Stream(writer)
        reason = "stop"
        for step in steps:
            if isinstance(step, Text):
                await stream.send({"choices": [_choice({"content": step.text})]})
            elif isinstance(step, Report):
                await stream.send({"choices": [], "redraft": {"progress": step._asdict()}})
            elif isinstance(step, Hang):
                await self._released.wait()
            elif isinstance(step, CutOff):
                reason = "length"
            elif isinstance(step, Die):
                writer.transport.abort()
                return
            else:
                await stream.fail(step)
                return
        await stream.send({"choices": [_choice({}, reason)]})
        usage = {"prompt_tokens": 20, "completion_tokens": 12, "total_tokens": 32}
        await stream.send({"choices": [], "usage": usage, "redraft": {"stats": self.stats}})
        await stream.end()


class _Stream:
    """Server-sent events in chunked encoding; the head goes out with the first one."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._begun = False

    async def send(self, data: dict[str, Any]) -> None:
        await self._chunk({"object": "chat.completion.chunk", **data})

    async def fail(self, step: Fail) -> None:
        error = {"error": {"message": step.message, "code": step.code, "type": "error"}}
        if not self._begun:
            _send_json(self._writer, step.status, error)
            await self._writer.drain()
            return
        await self._chunk(error)
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def end(self) -> None:
        await self._chunk("[DONE]")
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()

    async def _chunk(self, data: Any) -> None:
        if not self._begun:
            self._begun = True
            self._writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
        text = data if isinstance(data, str) else json.dumps(data)
        payload = f"data: {text}\n\n".encode()
        self._writer.write(f"{len(payload):x}\r\n".encode() + payload + b"\r\n")
        await self._writer.drain()


def _choice(delta: dict[str, str], reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "finish_reason": reason}


def _send_json(writer: asyncio.StreamWriter, status: int, data: Any) -> None:
    body = json.dumps(data).encode()
    writer.write(
        f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
