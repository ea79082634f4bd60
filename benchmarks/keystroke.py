"""How long a keystroke takes in a 20,000-line file while a rewrite streams into it.

    python -m benchmarks.keystroke [--lines N] [--keys N] [--json]

`redraft-lsp` runs as an editor runs it. A scripted engine sends 500 tokens a second of an
answer for one function; meanwhile characters are typed far away from it, each followed by
the cheapest request there is. The time from the keystroke to that request's answer is an
upper bound of what handling it takes (aim: p99 under 3 ms). The same is timed without a
rewrite. Then the span at the cursor is looked for in a text that was never parsed before
(aim: under 50 ms).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from benchmarks.common import spread, verdict
from lsp_server.core import RewriteError
from lsp_server.spans import span_at

AIM_KEY_SECONDS = 0.003
AIM_SPAN_SECONDS = 0.05
TOKEN_SECONDS = 0.002
TOKEN_CHARS = 4
LONGEST_WAIT = 30.0
URI = "file:///project/long.py"
FUNCTION_LINES = 400


def main(arguments: list[str] | None = None) -> int:
    """Print the times beside their aims."""
    parser = argparse.ArgumentParser(description="Time of a keystroke while a rewrite streams.")
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--keys", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    text = long_file(options.lines)
    alone, streaming = key_times(text, options.keys)
    spans = span_times(text, 5)
    found: dict[str, Any] = {
        "lines": options.lines,
        "keys": options.keys,
        "alone_p99_ms": 1000 * p99(alone),
        "streaming_p99_ms": 1000 * p99(streaming),
        "span_ms": 1000 * statistics.median(spans) if spans else None,
    }
    if options.json:
        print(json.dumps(found))
        return 0
    print(f"{options.lines:,} lines, {options.keys:,} keystrokes, load {os.getloadavg()[0]:.1f}")
    for name, times in (("no rewrite", alone), ("streaming", streaming)):
        shown = spread([1000 * seconds for seconds in times], " ms")
        print(f"keystroke, {name}: p99 {1000 * p99(times):.2f} ms; median {shown}")
    print(verdict(p99(streaming) < AIM_KEY_SECONDS, "p99 under 3 ms while streaming"))
    if not spans:
        print("span: not found, as the file takes too long to parse")
    else:
        print(f"span found in {spread([1000 * seconds for seconds in spans], ' ms')}")
    print(verdict(bool(spans) and max(spans) < AIM_SPAN_SECONDS, "span under 50 ms"))
    return 0


def long_file(lines: int) -> str:
    """Return Python of so many lines: one long function first, then short ones."""
    body = "".join(f"    value_{n} = compute({n}, size)\n" for n in range(FUNCTION_LINES - 2))
    long = f"def first(size):\n{body}    return size\n"
    short = "".join(
        f"\n\ndef function_{n}(a, b):\n    total = a * {n} + b\n    return total\n"
        for n in range(max(0, lines - FUNCTION_LINES) // 5)
    )
    return long + short


def p99(times: Sequence[float]) -> float:
    """Return the least time that 99 of 100 do not exceed."""
    return sorted(times)[math.ceil(0.99 * len(times)) - 1]


def span_times(text: str, count: int) -> list[float]:
    """Return seconds to find the span at the end of texts never seen before, or []."""
    times = []
    for n in range(count):
        fresh = f"# {n}\n{text}"
        begun = time.perf_counter()
        try:
            span_at(fresh, "python", len(fresh) - 5)
        except RewriteError:
            return []
        times.append(time.perf_counter() - begun)
    return times


def key_times(text: str, count: int) -> tuple[list[float], list[float]]:
    """Return seconds a keystroke without and with a rewrite that streams, so many of each."""
    # Not a deep folder: a socket's path has at most about 100 characters.
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "engine.sock")
        engine = Engine(path, text.split("\n\n\n")[0].replace("size", "count"))
        client = Client(text, f"unix:{path}")
        try:
            alone = [client.key() for _ in range(count)]
            client.rewrite()
            if not engine.asked.wait(LONGEST_WAIT):
                raise RuntimeError("the server never asked the engine")
            streaming = []
            while len(streaming) < count and not engine.ended.is_set():
                streaming.append(client.key())
            return alone, streaming
        finally:
            client.end()


class Engine:
    """Answers the first request with a text in tokens, over and over, on a thread of its own."""

    def __init__(self, path: str, answer: str) -> None:
        self.asked, self.ended = threading.Event(), threading.Event()
        self._answer = answer
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(path)
        self._listening.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._listening.accept()
            threading.Thread(target=self._stream, args=(connection,), daemon=True).start()

    def _stream(self, connection: socket.socket) -> None:
        with connection:
            head = connection.recv(1 << 20)
            if b"/chat/completions" not in head:
                connection.sendall(b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")
                return
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
            )
            self.asked.set()
            try:
                for at in range(0, len(self._answer), TOKEN_CHARS):
                    delta = {"content": self._answer[at : at + TOKEN_CHARS]}
                    choice = {"index": 0, "delta": delta, "finish_reason": None}
                    data = json.dumps({"object": "chat.completion.chunk", "choices": [choice]})
                    connection.sendall(f"data: {data}\n\n".encode())
                    time.sleep(TOKEN_SECONDS)
            except OSError:
                pass
            self.ended.set()


class Client:
    """An editor with one file, over pipes."""

    def __init__(self, text: str, engine_url: str) -> None:
        self._server = subprocess.Popen(
            [str(Path(sys.executable).with_name("redraft-lsp")), "--stdio"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "REDRAFT_ENGINE_URL": engine_url},
        )
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._in: IO[bytes] = self._server.stdin
        self._out: IO[bytes] = self._server.stdout
        self._version = self._id = 1
        self._last = text.count("\n")
        self._request(
            "initialize",
            {"processId": None, "capabilities": {"experimental": {"redraft": {"hunks": True}}}},
        )
        self._send("initialized", {})
        item = {"uri": URI, "languageId": "python", "version": 1, "text": text}
        self._send("textDocument/didOpen", {"textDocument": item})
        self._request("redraft/cancel", {"jobId": "none"})

    def key(self) -> float:
        """Type a character in the last line; return the seconds until it was handled."""
        self._version += 1
        place = {"line": self._last, "character": 0}
        change = {"range": {"start": place, "end": place}, "text": "#"}
        document = {"uri": URI, "version": self._version}
        begun = time.perf_counter()
        self._send("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
        self._request("redraft/cancel", {"jobId": "none"})
        return time.perf_counter() - begun

    def rewrite(self) -> None:
        """Begin to rewrite the first function; the answer is not waited for."""
        where = {
            "start": {"line": 0, "character": 0},
            "end": {"line": FUNCTION_LINES - 1, "character": 15},
        }
        params = {"textDocument": {"uri": URI}, "range": where, "instruction": "rename"}
        self._send("redraft/rewrite", params, id="rewrite")

    def end(self) -> None:
        """Kill the server: nothing of it is needed any more."""
        self._server.kill()
        self._server.wait()

    def _send(self, method: str, params: Any, **more: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        self._in.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self._in.flush()

    def _request(self, method: str, params: Any) -> None:
        self._id += 1
        self._send(method, params, id=self._id)
        while self._read().get("id") != self._id:
            pass

    def _read(self) -> dict[str, Any]:
        length = 0
        while line := self._out.readline().strip():
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        if not length:
            raise RuntimeError("the server has ended")
        return json.loads(self._out.read(length))


if __name__ == "__main__":
    raise SystemExit(main())
