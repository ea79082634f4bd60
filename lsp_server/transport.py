"""The base protocol over two file descriptors: framed messages in and out.

Two threads do the blocking reads and writes, so that neither a client that is slow to
read nor one that is silent ever holds up the event loop. Both use plain `os.read` and
`os.write`: a thread inside a buffered reader would stop the interpreter from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import queue
import threading
from collections.abc import Callable

MAX_HEADER_BYTES = 8 * 1024
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_UNSENT_BYTES = 128 * 1024 * 1024
_MAX_UNHANDLED_MESSAGES = 64
_CHUNK_BYTES = 64 * 1024

logger = logging.getLogger(__name__)


class FrameParser:
    """Cuts a byte stream into message bodies. Pure: bytes in, bodies out.

    A header block without a usable Content-Length is skipped, and so is a body longer
    than `MAX_BODY_BYTES`; the stream goes on after it.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._needed: int | None = None
        self._discard = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes and return the bodies that they complete."""
        self._buffer += data
        bodies: list[bytes] = []
        while True:
            if self._discard:
                dropped = min(self._discard, len(self._buffer))
                del self._buffer[:dropped]
                self._discard -= dropped
                if self._discard:
                    return bodies
            if self._needed is None and not self._read_header():
                return bodies
            if self._needed is None:
                continue
            if len(self._buffer) < self._needed:
                return bodies
            bodies.append(bytes(self._buffer[: self._needed]))
            del self._buffer[: self._needed]
            self._needed = None

    def _read_header(self) -> bool:
        """Consume one header block; False when it is not complete yet."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > MAX_HEADER_BYTES:
                # Not a header. Keep the tail: a real one may begin there.
                del self._buffer[:-256]
            return False
        block = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        length = _content_length(block)
        if length is None:
            logger.warning("skipped a header without Content-Length")
        elif length > MAX_BODY_BYTES:
            logger.warning("skipped a message of %d bytes", length)
            self._discard = length
        else:
            self._needed = length
        return True


def _content_length(block: bytes) -> int | None:
    for line in block.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            digits = value.strip()
            return int(digits) if len(digits) < 16 else MAX_BODY_BYTES + 1
    return None


class Reader:
    """Reads a descriptor in a daemon thread and hands each body to the event loop."""

    def __init__(
        self,
        descriptor: int,
        on_body: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self._descriptor = descriptor
        self._on_body = on_body
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        # Bounds what waits for the loop: a flood then waits in the pipe, at the client.
        self._room = threading.Semaphore(_MAX_UNHANDLED_MESSAGES)
        threading.Thread(target=self._run, name="redraft-read", daemon=True).start()

    def _run(self) -> None:
        parser = FrameParser()
        # RuntimeError: the loop is closed, so nobody waits for us any more.
        with contextlib.suppress(RuntimeError):
            while data := self._read():
                for body in parser.feed(data):
                    self._room.acquire()
                    self._loop.call_soon_threadsafe(self._deliver, body)
            self._loop.call_soon_threadsafe(self._on_end)

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, _CHUNK_BYTES)
        except OSError:
            return b""

    def _deliver(self, body: bytes) -> None:
        self._room.release()
        self._on_body(body)


class Writer:
    """Writes to a descriptor from a daemon thread; pygls' writer interface.

    `write` never blocks. A client that reads nothing is given up once
    `MAX_UNSENT_BYTES` wait for it.
    """

    def __init__(self, descriptor: int, on_failure: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._unsent = 0
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="redraft-write", daemon=True)
        self._thread.start()

    @property
    def unsent_bytes(self) -> int:
        """How much the client has yet to read."""
        return self._unsent

    def write(self, data: bytes) -> None:
        """Queue one framed message."""
        if self._failed:
            return
        with self._lock:
            self._unsent += len(data)
        if self._unsent > MAX_UNSENT_BYTES:
            logger.error("the client reads nothing; giving up")
            self._fail()
            return
        self._queue.put(data)

    def close(self, seconds: float = 1.0) -> None:
        """Send what is queued, for at most so many seconds."""
        self._queue.put(None)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (data := self._queue.get()) is not None:
            try:
                _write_all(self._descriptor, data)
            except OSError:
                with contextlib.suppress(RuntimeError):
                    self._loop.call_soon_threadsafe(self._fail)
                return
            with self._lock:
                self._unsent -= len(data)

    def _fail(self) -> None:
        if not self._failed:
            self._failed = True
            self._on_failure()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
