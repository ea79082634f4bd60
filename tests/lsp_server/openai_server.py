"""A server that plays a list of raw HTTP answers, for what our own engine never does."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class RawServer:
    """Answers every request with the same pieces of bytes, then closes."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces = pieces
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.closed_by_client = asyncio.Event()
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append((head[0], headers, json.loads(body) if body else None))
        for piece in self._pieces:
            if piece == b"WAIT FOR CLOSE":
                await reader.read()
                self.closed_by_client.set()
                break
            writer.write(piece)
            await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def raw_server(*pieces: bytes) -> AsyncIterator[RawServer]:
    server = RawServer(pieces)
    listener = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    async with listener:
        yield server


def data(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return f"data: {text}\n\n".encode()


def text_chunk(text: str | None, reason: str | None = None) -> bytes:
    delta = {} if text is None else {"content": text}
    return data({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
