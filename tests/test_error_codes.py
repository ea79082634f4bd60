"""The error codes that the pages list are those that the code raises."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from redraft.exit_codes import ExitCode, exit_code_of_error

ROOT = Path(__file__).resolve().parents[1]


def raised(error: str, room: str) -> set[str]:
    """Return the codes of all `ERROR("code", ...)` in a room."""
    return {
        node.args[0].value
        for file in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == error
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }


def listed(page: str, heading: str) -> set[str]:
    """Return the codes of the table below a heading that begins so."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    section = text[text.index(heading) :]
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", section[: section.find("\n## ", 10)], re.M)
    return {code for row in rows for code in re.findall(r"`(\w+)`", row)}


def test_the_engines_page_lists_the_engines_codes() -> None:
    in_helpers = {"disk_full", "unauthorized", "out_of_memory", "invalid_request"}
    codes = raised("EngineError", "engine") | in_helpers
    assert listed("engine-api.md", "## Errors") == codes


def test_the_editors_page_lists_the_language_servers_codes() -> None:
    # `unknown_language` is asked for nowhere without a known language; `internal` and
    # `context_length_exceeded` stand on the engine's page, on which this one builds.
    elsewhere = {"unknown_language", "internal", "context_length_exceeded"}
    # An ended job's state, and what another server's error without a code becomes.
    computed = {"accepted", "rejected", "cancelled", "failed", "stale", "server_error"}
    codes = (raised("RewriteError", "lsp_server") - elsewhere) | computed
    assert listed("lsp-extensions.md", "## `redraft/rewrite`") == codes


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("empty_instruction", ExitCode.USAGE),
        ("no_symbol", ExitCode.TARGET),
        ("parse_timeout", ExitCode.TARGET),
        ("context_length_exceeded", ExitCode.TARGET),
        ("file_not_text", ExitCode.FILE),
        ("file_no_space", ExitCode.FILE),
        ("model_not_found", ExitCode.MODEL),
        ("unsupported_model", ExitCode.MODEL),
        ("download_damaged", ExitCode.MODEL),
        ("disk_full", ExitCode.MODEL),
        ("engine_died", ExitCode.FAILURE),
        ("anything else", ExitCode.FAILURE),
    ],
)
def test_an_error_has_the_exit_code_of_its_kind(code, expected) -> None:
    assert exit_code_of_error(code) is expected
