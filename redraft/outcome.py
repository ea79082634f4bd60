"""The end of `redraft rewrite`: write, show or print the result, in the mode asked for."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from lsp_server.core import RewriteRequest, RewriteResult, Status
from lsp_server.text.hunks import apply_hunks
from lsp_server.text.positions import LineIndex
from redraft import render
from redraft.diffs import line_edits, unified_diff
from redraft.exit_codes import ExitCode, exit_code_of_status
from redraft.files import SourceFile, write_source
from redraft.interrupts import uninterrupted

_STATS = (
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
)


class Mode(NamedTuple):
    """What happens with a result.

    Attributes:
        write: the file is written.
        json: one object on stdout, and nothing else there.
        live: stdout is a terminal that shows the diff in colour; else it gets a plain one.
    """

    write: bool
    json: bool
    live: bool


def print_json(value: Mapping[str, Any]) -> None:
    """Print one object; ASCII only, so that no locale can spoil it."""
    print(json.dumps(value))


def finish(
    mode: Mode, source: SourceFile, request: RewriteRequest, result: RewriteResult
) -> ExitCode:
    """Write the file where asked for, show the result, and return the exit code.

    Raises:
        RewriteError: the file could not be written.
    """
    new_text = source.text
    if result.status is Status.OK:
        new_text = apply_hunks(source.text, result.hunks)
        if mode.write:
            with uninterrupted():
                write_source(source, new_text)
    if mode.json:
        print_json(result_object(request, result))
        return exit_code_of_status(result.status)

    lines = LineIndex(source.text)
    if mode.live:
        console = Console(highlight=False)
        for row in render.diff_rows(source.text, lines, result.hunks):
            console.print(row, soft_wrap=True)
    elif not mode.write:
        _print_diff(source, new_text)
    say(_outcome(mode, source, lines, result))
    statistics = render.statistics_line(result.stats)
    if statistics:
        say(statistics)
    if notice := result.stats.get("notice"):
        say(str(notice))
    return exit_code_of_status(result.status)


def _outcome(mode: Mode, source: SourceFile, lines: LineIndex, result: RewriteResult) -> str:
    if result.status is Status.UNCHANGED:
        return f"{source.shown}: nothing to change. {result.message}".rstrip()
    if result.status is not Status.OK:
        return f"redraft: {result.message} (--json shows the answer)"
    summary = render.edits_summary(line_edits(source.text, lines, result.hunks))
    return f"{source.shown}: {summary}; {'written' if mode.write else 'not written'}"


def result_object(request: RewriteRequest, result: RewriteResult) -> dict[str, Any]:
    """What `--json` prints; docs/cli.md describes it."""
    lines, span = LineIndex(request.text), request.span
    return {
        "status": result.status.value,
        "text": result.text,
        "span": {
            "start_line": lines.line_of(span.start) + 1,
            "end_line": lines.line_of(span.end) + 1,
            "start": span.start,
            "end": span.end,
            "kind": span.kind,
            "name": span.name,
        },
        "hunks": [
            {
                "id": hunk.id,
                "start_line": lines.line_of(hunk.start) + 1,
                "old": hunk.old_text,
                "new": hunk.new_text,
            }
            for hunk in result.hunks
        ],
        "message": result.message,
        "stats": {key: result.stats.get(key) for key in _STATS},
    }


def _print_diff(source: SourceFile, new_text: str) -> None:
    mark = "\ufeff" if source.encoding.bom else ""
    diff = unified_diff(source.shown, mark + source.text, mark + new_text)
    sys.stdout.flush()
    sys.stdout.buffer.write(diff.encode("utf-8", "surrogateescape"))
    sys.stdout.buffer.flush()
    if diff and source.encoding.codec != "utf-8":
        say(
            f"The diff is in UTF-8 and the file in {source.encoding.label}: `patch` cannot apply"
            " it; use --write."
        )


def say(message: str) -> None:
    """Print one sentence for people on stderr."""
    Console(stderr=True, highlight=False).print(Text(message), soft_wrap=True)
