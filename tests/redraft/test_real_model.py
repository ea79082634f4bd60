"""The real 1.5B model through the command line: the drafts change the speed, not the text."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lsp_server.spans import spans_named

ROOT = Path(__file__).resolve().parents[2]
MODEL = "qwen2.5-coder-1.5b-instruct"
TASK = json.loads((ROOT / "examples" / "instructions.json").read_text())["inventory.py"]

pytestmark = pytest.mark.model


def _redraft(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "redraft.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, **options)


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """An engine of the test's own; the user's is left alone."""
    # Not pytest's folder: a socket's path may be no longer than about 100 bytes.
    with tempfile.TemporaryDirectory(prefix="redraft-") as runtime:
        environment = {**os.environ, "REDRAFT_RUNTIME_DIR": runtime}
        yield environment
        stopped = _redraft("engine", "stop", env=environment)
        assert stopped.returncode == 0, stopped.stderr


def _rewrite(file: Path, environment: dict[str, str], *options: str) -> dict[str, Any]:
    done = _redraft(
        "rewrite",
        str(file),
        "--symbol",
        TASK["symbol"],
        "--instruction",
        TASK["instruction"],
        "--model",
        MODEL,
        "--json",
        *options,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_drafts_cut_the_passes_of_a_rename_and_leave_the_text_as_it_is(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "inventory.py"
    file.write_bytes((ROOT / "examples" / "inventory.py").read_bytes())
    plain = _rewrite(file, environment, "--no-draft")
    drafted = _rewrite(file, environment, "--write")

    assert drafted["text"] == plain["text"]
    assert plain["stats"]["passes"] >= 3 * drafted["stats"]["passes"]
    written = file.read_text(encoding="utf-8")
    (span,) = spans_named(written, "python", TASK["symbol"])
    assert "qty" not in written[span.start : span.end]
    compile(written, file.name, "exec")
