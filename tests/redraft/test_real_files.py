"""The real 1.5B model rewrites real files through the command line, and the results parse."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsp_server.languages import language_of
from lsp_server.spans import spans_named
from lsp_server.syntax_check import new_syntax_errors

ROOT = Path(__file__).resolve().parents[2]
MODEL = "qwen2.5-coder-1.5b-instruct"
EDITS = Path(os.environ.get("REDRAFT_EDITS", ROOT.parent / "shared" / "edits"))
EXAMPLES = json.loads((ROOT / "examples" / "instructions.json").read_text())

# What a right answer has and has not, as patterns over the new span.
RIGHT = {
    "inventory.py": (r"\bquantity\b", r"\bqty\b"),
    "cart.ts": (r"\blineTotal\b", r"\bamt\b"),
    "lru.go": (r"if total == 0 \{\s*return 0", None),
    "matrix.rs": (r"\bproduct\b", r"\bout\b"),
    "Scheduler.java": (r"\bentry\.job\(\)", r"\be\.job\(\)"),
    "ring.c": (r"(ring == NULL|!ring)\)\s*\{?\s*return -1;", None),
}

# An instruction that this small model can be asked for each file of the demo data.
SMOKE = {
    "rich": ("decimal", "Rename the parameter `size` to `num_bytes`.", (r"num_bytes: int", None)),
    "zod": ("finalizeIssue", "Rename the variable `full` to `issue`.", (r"return issue;", None)),
    "chi": ("realIP", "Rename the variable `ip` to `address`.", (r"return address", r"\bip\b")),
    "bat": (
        "to_ansi_color",
        "Rename the parameter `true_color` to `is_true_color`.",
        (r"else if is_true_color", r"\btrue_color\b"),
    ),
    "gson": (
        "checkState",
        "Throw an IllegalStateException instead of an IllegalArgumentException.",
        (r"new IllegalStateException\(", "IllegalArgument"),
    ),
    "libuv": ("uv__stream_init", 'Open "/dev/null" instead of "/".', (r'"/dev/null"', r'"/"')),
}

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """One engine for all, of the tests' own."""
    # Not pytest's folder: a socket's path may be no longer than about 100 bytes.
    with tempfile.TemporaryDirectory(prefix="redraft-") as runtime:
        environment = {**os.environ, "REDRAFT_RUNTIME_DIR": runtime}
        yield environment
        _redraft("engine", "stop", env=environment)


def _redraft(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "redraft.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, **options)


def _check_rewrite(
    file: Path,
    symbol: str,
    instruction: str,
    right: tuple[str, str | None],
    environment: dict[str, str],
) -> None:
    """Rewrite `symbol` of `file` in place and check what came of it."""
    before, language = file.read_text(encoding="utf-8"), language_of(file.name)
    (span,) = spans_named(before, language, symbol)
    done = _redraft(
        *("rewrite", str(file), "--symbol", symbol, "--instruction", instruction),
        *("--model", MODEL, "--write", "--json"),
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["status"] == "ok", answer["message"]
    after = file.read_text(encoding="utf-8")
    end = span.end + len(after) - len(before)
    assert after[span.start : end] == answer["text"]
    assert (before[: span.start], before[span.end :]) == (after[: span.start], after[end:])
    assert new_syntax_errors(before, after, language, span, end) == []
    present, absent = right
    assert re.search(present, answer["text"])
    assert absent is None or not re.search(absent, answer["text"])
    assert answer["stats"]["passes"] < answer["stats"]["tokens"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_rewritten_as_its_instruction_says(
    name: str, environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes((ROOT / "examples" / name).read_bytes())
    task = EXAMPLES[name]
    _check_rewrite(file, task["symbol"], task["instruction"], RIGHT[name], environment)


@pytest.mark.parametrize("repository", SMOKE)
def test_every_file_of_the_demo_data_is_rewritten_as_its_instruction_says(
    repository: str, environment: dict[str, str], tmp_path: Path
) -> None:
    data = EDITS / "smoke.jsonl"
    if not data.exists():
        pytest.skip(f"the demo data is not at {data.parent}; REDRAFT_EDITS names its folder")
    items = [json.loads(line) for line in data.read_text(encoding="utf-8").splitlines()]
    (item,) = [item for item in items if item["id"].startswith(f"{repository}-")]
    file = tmp_path / Path(item["source"]["path"]).name
    file.write_text(item["before"], encoding="utf-8")
    symbol, instruction, right = SMOKE[repository]
    _check_rewrite(file, symbol, instruction, right, environment)
