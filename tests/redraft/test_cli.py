"""`redraft rewrite` as a real process, with a scripted engine at the other end of a socket."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from redraft import __version__
from redraft.cli import main
from redraft.files import read_source, write_source
from redraft.interrupts import uninterrupted
from tests.editor.scripted_engine import CutOff, Die, Fail, Hang, Report, ScriptedEngine, Text

SHELF = """\
class Shelf:
    def count(self):
        n = 1
        return n


def total(shelves):
    n = 0
    for shelf in shelves:
        n += shelf.count()
    return n
"""
ANSWER = """\
def total(shelves):
    pieces = 0
    for shelf in shelves:
        pieces += shelf.count()
    return pieces
"""
REWRITTEN = SHELF[: SHELF.index("def total")] + ANSWER
TOTAL = ("--symbol", "total", "--instruction", "Rename n to pieces.")


class Done(NamedTuple):
    code: int
    out: bytes
    err: str

    @property
    def object(self) -> dict[str, Any]:
        """The one JSON object of stdout."""
        assert self.out.count(b"\n") == 1
        return json.loads(self.out)


@pytest.fixture
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ScriptedEngine]:
    async with ScriptedEngine(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shelf.py"
    path.write_bytes(SHELF.encode())
    return path


async def start(
    *arguments: str | Path,
    before: Callable[[], None] | None = None,
    stdout: int = subprocess.PIPE,
    **environment: str,
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "redraft.cli",
        *map(str, arguments),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **environment},
        preexec_fn=partial(prepare, before),
    )


def prepare(before: Callable[[], None] | None) -> None:
    """Give the child a terminal's signals: under nohup, and in the background, some are ignored."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if before is not None:
        before()


async def end(process: asyncio.subprocess.Process) -> Done:
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    assert b"Traceback" not in err, err.decode()
    return Done(process.returncode, out or b"", err.decode())


async def redraft(*arguments: str | Path, before: Callable[[], None] | None = None) -> Done:
    return await end(await start(*arguments, before=before))


async def rewrite(engine: ScriptedEngine, *arguments: str | Path, **options: Any) -> Done:
    return await redraft("rewrite", *arguments, "--engine-url", engine.url, **options)


async def test_version_and_help_need_nothing_else() -> None:
    assert (await redraft("--version")).out.decode().strip() == f"redraft {__version__}"
    shown = await redraft("--help")
    assert shown.code == 0
    assert b"exit codes:" in shown.out
    shown = await redraft("rewrite", "--help")
    assert b"exit codes:" in shown.out
    assert b"--symbol" in shown.out


async def test_what_is_special_about_the_engine_is_said_last(engine, file) -> None:
    engine.stats["notice"] = "mamba models run a token at a time."
    engine.script(Text(ANSWER))
    done = await rewrite(engine, file, *TOTAL, "--diff")
    assert done.err.splitlines()[-1] == "mamba models run a token at a time."


async def test_a_diff_is_printed_and_the_file_left_alone(engine, file) -> None:
    engine.script(Report("loading", 0.5), Text(ANSWER))
    done = await rewrite(engine, file, *TOTAL, "--diff")
    assert done.code == 0, done.err
    assert done.out.decode().splitlines()[:2] == ["--- a/shelf.py", "+++ b/shelf.py"]
    assert file.read_text() == SHELF
    assert "loading the model 50%" in done.err
    assert "12 tokens, 23.4 tokens/s, 3 passes, 4.0 tokens per pass" in done.err
    patch = await asyncio.create_subprocess_exec(
        "patch", "-p1", cwd=file.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert "patching file shelf.py" in (await patch.communicate(done.out))[0].decode()
    assert file.read_text() == REWRITTEN


async def test_without_a_mode_and_a_terminal_it_is_the_same_diff(engine, file) -> None:
    engine.script(Text(ANSWER))
    engine.script(Text(ANSWER))
    plain = await rewrite(engine, file, *TOTAL)
    assert plain.code == 0
    assert plain.out == (await rewrite(engine, file, *TOTAL, "--diff")).out


async def test_json_is_one_object_with_the_promised_keys(engine, file) -> None:
    engine.script(Text(ANSWER))
    done = await rewrite(engine, file, *TOTAL, "--json")
    assert done.code == 0
    answer = done.object
    assert list(answer) == ["status", "text", "span", "hunks", "message", "stats"]
    assert answer["status"] == "ok"
    assert answer["text"] == ANSWER.rstrip("\n")
    start = SHELF.index("def total")
    assert answer["span"] == {
        "start_line": 7,
        "end_line": 11,
        "start": start,
        "end": len(SHELF) - 1,
        "kind": "function",
        "name": "total",
    }
    assert [hunk["start_line"] for hunk in answer["hunks"]] == [8, 10]
    assert answer["hunks"][0]["old"].strip() == "n = 0"
    assert answer["hunks"][0]["new"].strip() == "pieces = 0"
    assert list(answer["hunks"][0]) == ["id", "start_line", "old", "new"]
    assert set(answer["stats"]) == {
        "tokens",
        "prefill_seconds",
        "decode_seconds",
        "tokens_per_second",
        "passes",
        "tokens_per_pass",
        "drafted",
        "accepted",
        "accepted_by_origin",
        "runner",
        "model",
    }
    assert answer["stats"]["passes"] == 3
    assert file.read_text() == SHELF


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end_of_line", ["\n", "\r\n"])
async def test_write_keeps_encoding_and_line_ends(engine, file, codec, end_of_line) -> None:
    before = "# Lager für Größen 🧰\n" + SHELF
    file.write_bytes(before.replace("\n", end_of_line).encode(codec))
    engine.script(Text(ANSWER))
    done = await rewrite(engine, file, *TOTAL, "--write")
    assert done.code == 0, done.err
    assert done.out == b""
    assert "written" in done.err
    after = "# Lager für Größen 🧰\n" + REWRITTEN
    assert file.read_bytes() == after.replace("\n", end_of_line).encode(codec)


async def test_write_and_json_go_together(engine, file) -> None:
    engine.script(Text(ANSWER))
    done = await rewrite(engine, file, *TOTAL, "--write", "--json")
    assert done.code == 0
    assert done.object["status"] == "ok"
    assert file.read_text() == REWRITTEN


async def test_nothing_to_change_is_said_and_is_no_failure(engine, file) -> None:
    done = await rewrite(engine, file, *TOTAL, "--diff")
    assert (done.code, done.out) == (0, b"")
    assert "nothing to change" in done.err


async def test_the_options_reach_the_engine(engine, file) -> None:
    options = ["--model", "m", "--draft-model", "d", "--no-draft", "--seed", "7"]
    options += ["--temperature", "0.5", "--max-tokens", "99", "--json"]
    assert (await rewrite(engine, file, *TOTAL, *options)).code == 0
    body = engine.requests[0]
    sent = {key: body[key] for key in ("model", "seed", "temperature", "max_tokens")}
    assert sent == {"model": "m", "seed": 7, "temperature": 0.5, "max_tokens": 99}
    assert body["redraft"]["draft"] is False
    assert body["redraft"]["draft_model"] == "d"


TARGETS = [
    (["--symbol", "totel"], "no_symbol", "Did you mean total?"),
    (["--symbol", "Shelf.total"], "no_symbol", "no function or class named Shelf.total"),
    (["--at", "6"], "no_span", "no function or class at line 6"),
    (["--at", "12"], "line_past_end", "no line 12: the file has 11 lines"),
    (["--lines", "5-6"], "empty_selection", "only white space"),
]


@pytest.mark.parametrize(("where", "code", "words"), TARGETS)
async def test_a_target_that_is_not_there_is_exit_code_3(engine, file, where, code, words) -> None:
    done = await rewrite(engine, file, *where, "--instruction", "x", "--json")
    assert done.code == 3
    assert (done.object["status"], done.object["code"]) == ("failed", code)
    assert words in done.object["message"]
    assert engine.requests == []


async def test_an_ambiguous_symbol_lists_its_lines(engine, file) -> None:
    file.write_text("def f():\n    pass\n\n\nclass A:\n    def f(self):\n        pass\n")
    done = await rewrite(engine, file, "--symbol", "f", "--instruction", "x")
    assert done.code == 3
    assert "f is defined 2 times, at lines 1, 6" in done.err


FILES = [
    (b"caf\xe9 = 1\n", "file_not_text", "byte 0xe9 at offset 3 (line 1)"),
    (b"a\0b\n", "file_not_text", "is a binary file"),
    (b"x = 1\n" * 850_000, "too_large", "holds 5,100,000 characters"),
]


@pytest.mark.parametrize(("data", "code", "words"), FILES, ids=["latin-1", "binary", "5 MB"])
async def test_a_file_redraft_cannot_edit_is_exit_code_4(engine, file, data, code, words) -> None:
    file.write_bytes(data)
    done = await rewrite(engine, file, "--lines", "1-1", "--instruction", "x", "--write", "--json")
    assert done.code == 4
    assert done.object["code"] == code
    assert words in done.object["message"]
    assert file.read_bytes() == data
    assert engine.requests == []


async def test_a_missing_file_and_a_folder_are_exit_code_4(engine, tmp_path) -> None:
    done = await rewrite(engine, tmp_path / "absent.py", *TOTAL)
    assert done.code == 4
    assert "There is no file" in done.err
    done = await rewrite(engine, tmp_path, *TOTAL)
    assert done.code == 4
    assert "is a folder" in done.err


async def test_a_full_disk_on_write_leaves_the_file_as_it_was(engine, file) -> None:
    def small_files_only() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))

    engine.script(Text(ANSWER))
    done = await rewrite(engine, file, *TOTAL, "--write", "--json", before=small_files_only)
    assert done.code == 4
    assert done.object["code"] == "file_no_space"
    assert "no room" in done.object["message"]
    assert file.read_text() == SHELF
    assert os.listdir(file.parent) == ["shelf.py"]


USAGE = [
    (["--instruction", " \n"], "The instruction is empty"),
    (["--instruction", "x", "--diff", "--write"], "--diff cannot be combined"),
    (["--instruction", "x", "--temperature", "nan"], "'nan' is not a number from 0 to 2"),
    (["--instruction", "x", "--max-tokens", "0"], "'0' is not a whole number from 1 to 1,000,000"),
    (["--instruction", "x", "--lines", "1-2"], "not allowed with argument"),
    ([], "--instruction"),
]


@pytest.mark.parametrize(("options", "words"), USAGE)
async def test_a_wrong_command_line_is_exit_code_2(engine, file, options, words) -> None:
    done = await rewrite(engine, file, "--symbol", "total", *options)
    assert done.code == 2
    assert words in done.err
    assert done.out == b""
    assert engine.requests == []


async def test_a_wrong_command_line_is_json_too_when_json_is_asked_for(file) -> None:
    done = await redraft("rewrite", file, "--json", "--instruction", "x")
    assert done.code == 2
    assert done.object["code"] == "usage"
    assert "--symbol" in done.object["message"]


@pytest.mark.parametrize("arguments", [[], ["nonsense"]])
async def test_a_missing_or_unknown_command_is_exit_code_2(arguments) -> None:
    done = await redraft(*arguments)
    assert done.code == 2
    assert "usage: redraft" in done.err


ENGINE_ERRORS = [
    ("model_not_found", 404, 5),
    ("unsupported_model", 400, 5),
    ("download_damaged", 502, 5),
    ("download_failed", 502, 5),
    ("context_length_exceeded", 400, 3),
    ("out_of_memory", 507, 1),
    ("internal", 500, 1),
]


@pytest.mark.parametrize(("code", "status", "exit_code"), ENGINE_ERRORS)
async def test_an_error_of_the_engine_is_told_in_its_words(
    engine, file, code, status, exit_code
) -> None:
    engine.script(Fail(code, "What happened and what to do.", status))
    done = await rewrite(engine, file, *TOTAL, "--write", "--json")
    assert done.code == exit_code
    assert done.object["status"] == "failed"
    assert done.object["code"] == code
    assert "What happened and what to do." in done.object["message"]
    assert file.read_text() == SHELF


async def test_an_engine_that_dies_in_the_middle_costs_only_the_request(engine, file) -> None:
    engine.script(Text("def total(shelves):\n    pieces"), Die())
    done = await rewrite(engine, file, *TOTAL, "--write", "--json")
    assert done.code == 1
    assert done.object["code"] == "engine_died"
    assert file.read_text() == SHELF


async def test_an_engine_that_is_not_there_is_exit_code_1(tmp_path, file) -> None:
    nobody = f"unix:{tmp_path}/nobody.sock"
    done = await redraft("rewrite", file, *TOTAL, "--engine-url", nobody)
    assert done.code == 1
    assert "Nothing answers at" in done.err


async def test_the_engine_may_be_named_by_the_environment(engine, file, monkeypatch) -> None:
    monkeypatch.setenv("REDRAFT_ENGINE_URL", engine.url)
    assert (await redraft("rewrite", file, *TOTAL, "--json")).code == 0
    assert len(engine.requests) == 1


async def test_an_empty_instruction_is_exit_code_2(engine, file) -> None:
    done = await rewrite(engine, file, "--symbol", "total", "--instruction", " \n", "--json")
    assert (done.code, done.object["code"]) == (2, "empty_instruction")
    assert engine.requests == []


NOT_APPLIED = [
    ((Text("def total(shelves):\n    pieces"), CutOff()), "cut_off"),
    ((Text("   \n"),), "empty"),
    ((Text(ANSWER.replace("shelves:", "shelves")),), "refused"),
]


@pytest.mark.parametrize(("steps", "status"), NOT_APPLIED, ids=[s for _, s in NOT_APPLIED])
async def test_an_answer_that_may_not_be_applied_is_exit_code_6(
    engine, file, steps, status
) -> None:
    engine.script(*steps)
    done = await rewrite(engine, file, *TOTAL, "--write", "--json")
    assert done.code == 6
    assert done.object["status"] == status
    assert done.object["message"]
    assert done.object["hunks"] == []
    assert file.read_text() == SHELF


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("as_json", [False, True])
async def test_an_interrupt_stops_the_engines_work_and_leaves_the_file(
    engine, file, as_json, number
) -> None:
    engine.script(Text("def total(shelves):\n"), Hang())
    process = await start(
        "rewrite", file, *TOTAL, "--write", "--engine-url", engine.url, *["--json"] * as_json
    )
    await engine.wait_for_requests(1)
    process.send_signal(number)
    await engine.wait_for_disconnects(1)
    done = await end(process)
    assert done.code == 130
    if as_json:
        assert done.object["status"] == "cancelled"
    else:
        assert "Interrupted" in done.err
    assert file.read_text() == SHELF


def test_an_interrupt_while_the_command_is_imported_is_one_json_object(monkeypatch, capsys) -> None:
    def import_module(_name: str) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(importlib, "import_module", import_module)
    try:
        assert main(["rewrite", "a.py", "--json"]) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    assert json.loads(capsys.readouterr().out)["status"] == "cancelled"


def test_an_interrupt_cannot_come_between_the_write_and_its_report(file, monkeypatch) -> None:
    source = read_source(file)
    real = os.replace

    def replace(*arguments: Any) -> None:
        real(*arguments)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(os, "replace", replace)
    # In a background job of a shell it is ignored from the start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with uninterrupted():
            write_source(source, REWRITTEN)
        assert file.read_text() == REWRITTEN
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--seed", str(2**63)),
        ("--seed", "9" * 5000),
        ("--seed", "1.5"),
        ("--max-tokens", "0"),
        ("--max-tokens", "1000001"),
        ("--max-tokens", "9" * 5000),
        ("--temperature", "nan"),
        ("--temperature", "-1"),
        ("--model", "two\nlines"),
        ("--model", "x" * 5000),
        ("--model", b"bad\xff"),
        ("--draft-model", "two\nlines"),
        ("--instruction", b"bad\xff"),
    ],
)
async def test_a_value_that_no_engine_takes_is_refused_before_one_is_asked(
    engine, file, option, value
) -> None:
    arguments = [file, *TOTAL, "--json", option, os.fsdecode(value)]
    done = await rewrite(engine, *arguments)
    assert done.code == 2
    assert done.object["status"] == "failed"
    assert len(done.object["message"]) < 200
    assert engine.requests == []


async def test_a_reader_that_goes_away_is_no_traceback(engine, file) -> None:
    engine.script(Text(ANSWER))
    reading, writing = os.pipe()
    process = await start(
        "rewrite", file, *TOTAL, "--json", "--engine-url", engine.url, stdout=writing
    )
    os.close(writing)
    os.close(reading)
    done = await end(process)
    assert done.code == 1
    assert "BrokenPipe" not in done.err


async def test_on_a_terminal_the_diff_is_shown_in_colour_and_nothing_written(engine, file) -> None:
    engine.script(Report("prefill", 0.25), Text(ANSWER))
    ours, theirs = pty.openpty()
    arguments = ["rewrite", file, *TOTAL, "--engine-url", engine.url]
    process = await start(*arguments, stdout=theirs, TERM="xterm", NO_COLOR="")
    os.close(theirs)
    shown = asyncio.create_task(asyncio.to_thread(read_terminal, ours))
    done = await end(process)
    screen = await shown
    assert done.code == 0
    assert "\x1b[32m    10 +         pieces += shelf.count()" in screen
    assert "\x1b[31m    10 -         n += shelf.count()" in screen
    assert screen.endswith("\x1b[32m    11 +     return pieces\x1b[0m\r\n")
    assert "shelf.py: 2 hunks, 3 lines removed, 3 added; not written" in done.err
    assert "3 passes" in done.err
    assert file.read_text() == SHELF


def read_terminal(handle: int) -> str:
    """All that is written to the other end, until it is closed."""
    parts = []
    while True:
        try:
            part = os.read(handle, 65536)
        except OSError:  # Linux: the other end is closed
            part = b""
        if not part:
            os.close(handle)
            return b"".join(parts).decode()
        parts.append(part)
