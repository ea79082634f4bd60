"""What people see: the diff's rows, the phases, the statistics."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lsp_server.core import Hunk, HunksUpdate, Progress, Span
from lsp_server.text.hunks import final_hunks
from lsp_server.text.positions import LineIndex
from redraft import render

TEXT = "".join(f"line {n}\n" for n in range(1, 21))


def _rows(text: str, new: str) -> list[str]:
    hunks = final_hunks(text, Span(0, len(text)), new)
    return [row.plain for row in render.diff_rows(text, LineIndex(text), hunks)]


def test_rows_have_the_numbers_of_their_own_side_and_a_little_context() -> None:
    new = TEXT.replace("line 5\n", "five\nmore\n").replace("line 15\n", "fifteen\n")
    assert _rows(TEXT, new) == [
        "     3   line 3",
        "     4   line 4",
        "     5 - line 5",
        "     5 + five",
        "     6 + more",
        "   ...",
        "    14   line 13",
        "    15   line 14",
        "    15 - line 15",
        "    16 + fifteen",
    ]


def test_context_is_not_shown_twice_between_near_hunks() -> None:
    new = TEXT.replace("line 5\n", "five\n").replace("line 7\n", "seven\n")
    rows = _rows(TEXT, new)
    assert rows.count("     6   line 6") == 1
    assert "   ..." not in rows


def test_no_control_character_of_a_source_reaches_the_terminal() -> None:
    rows = _rows("a\x1b[2Jb\x07\n", "\x9bc\x1b]0;t\x07\u202e\td\n")
    shown = "".join(rows)
    assert "[2Jb" in shown
    assert all(char.isprintable() for char in shown)


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (Progress("starting"), "starting the engine"),
        (Progress("fetching", 0.42, "412 of 1117 MB"), "fetching the model 42% (412 of 1117 MB)"),
        (Progress("prefill", 1.0), "reading 100%"),
        (Progress("something new", None, "x"), "something new (x)"),
    ],
)
def test_the_phase_is_said_in_words(progress: Progress, text: str) -> None:
    assert render.progress_text(progress) == text


def test_the_statistics_are_one_line() -> None:
    stats = {
        "tokens": 212,
        "prefill_seconds": 3.21,
        "decode_seconds": 4.1,
        "tokens_per_second": 51.7,
        "passes": 24,
        "tokens_per_pass": 8.83,
        "drafted": 200,
        "accepted": 186,
    }
    assert render.statistics_line(stats) == (
        "212 tokens, prefill 3.2 s, decode 4.1 s, 51.7 tokens/s, 24 passes,"
        " 8.8 tokens per pass, 186 of 200 drafted tokens accepted (93%)"
    )


def test_statistics_that_a_server_does_not_give_are_left_out() -> None:
    assert render.statistics_line({"tokens": 5, "passes": None}) == "5 tokens"
    assert render.statistics_line({}) == ""


def test_without_a_terminal_each_phase_is_one_line() -> None:
    out = io.StringIO()
    with render.LineReporter(Console(file=out)) as reporter:
        for n in range(50):
            reporter.progress(Progress("loading", n / 50))
        reporter.progress(Progress("writing", None, "12 tokens/s"))
        reporter.update(HunksUpdate((), 0, ""))
    assert out.getvalue() == "loading the model 0%\nwriting (12 tokens/s)\n"


def test_on_a_terminal_the_diff_grows_and_goes_away_at_the_end() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=20)
    with render.LiveReporter(console, TEXT) as reporter:
        reporter.progress(Progress("prefill", 0.5))
        reporter.update(HunksUpdate((Hunk("h1", 0, 6, "line 1", "first [bold]"),), 7, ""))
    shown = out.getvalue()
    assert "first [bold]" in shown
    assert "\x1b[2K" in shown  # the live part is erased
