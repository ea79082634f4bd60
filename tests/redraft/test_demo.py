"""`python -m redraft.demo` beside a scripted engine: the real server, the real client."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lsp_server.core import Span
from redraft.target import Symbol, find_span
from tests.editor.scripted_engine import Die, Fail, Report, ScriptedEngine, Text

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "inventory.py"


@pytest.fixture
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ScriptedEngine]:
    async with ScriptedEngine(tmp_path_factory.mktemp("engine")) as engine:
        yield engine


def _answer(new: str = "quantity") -> str:
    text = EXAMPLE.read_text(encoding="utf-8")
    span: Span = find_span(text, "python", Symbol("apply_movements"))
    return text[span.start : span.end].replace("qty", new) + "\n"


async def _demo(engine: ScriptedEngine, *arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "redraft.demo",
        "--engine-url",
        engine.url,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode is not None
    assert b"Traceback" not in out, out.decode()
    return process.returncode, out.decode()


async def test_the_demo_shows_the_diff_applies_the_edit_and_compares(engine) -> None:
    before = EXAMPLE.read_bytes()
    answer = _answer()
    engine.script(Report("loading", 0.5), Text(answer[:900]), Text(answer[900:]))
    engine.script(Text(_answer()))
    code, out = await _demo(engine)
    assert code == 0, out
    assert "loading the model 50%" in out
    assert out.count("+         if quantity < 0 or (quantity == 0") == 1
    assert out.count("+         item.reserved = min(item.reserved, quantity)") == 0
    assert out.count("+             item.reserved = min(item.reserved, quantity)") == 1
    assert "Identical text: yes" in out
    assert "Edit applied to the editor's text: yes" in out
    assert "tokens per pass" in out
    assert [request["redraft"]["draft"] for request in engine.requests] == [True, False]
    assert EXAMPLE.read_bytes() == before


async def test_the_demo_fails_when_the_texts_differ(engine) -> None:
    engine.script(Text(_answer()))
    engine.script(Text(_answer("pieces")))
    code, out = await _demo(engine)
    assert code == 1
    assert "Identical text: NO" in out


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (Fail("model_not_found", "There is no model m.", 404), "There is no model m."),
        (Die(), "closed the connection"),
        (Text(""), "answered with nothing"),
    ],
)
async def test_the_demo_fails_with_the_reason_when_a_rewrite_does(engine, step, words) -> None:
    engine.script(step)
    code, out = await _demo(engine)
    assert code == 1
    assert "The demo failed" in out
    assert words in out


async def test_a_file_of_ones_own_needs_symbol_and_instruction(engine, tmp_path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("def f():\n    return 1\n")
    code, out = await _demo(engine, "--file", str(mine))
    assert code == 1
    assert "--symbol and --instruction" in out
    engine.script(Text("def f():\n    return 2\n"))
    engine.script(Text("def f():\n    return 2\n"))
    code, out = await _demo(engine, "--file", str(mine), "--symbol", "f", "--instruction", "2")
    assert code == 0, out
    assert mine.read_text() == "def f():\n    return 1\n"
