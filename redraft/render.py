"""What a person sees while a rewrite runs: the phase, the growing diff, the statistics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from lsp_server.core import Hunk, HunksUpdate, Progress
from lsp_server.text.positions import LineIndex
from redraft.diffs import LineEdit, line_edits

_CONTEXT = 2
_SECONDS_BETWEEN_LINES = 5.0
_PHASES = {
    "starting": "starting the engine",
    "queued": "waiting for another rewrite",
    "fetching": "fetching the model",
    "converting": "converting the model, once",
    "loading": "loading the model",
    "prefill": "reading",
    "writing": "writing",
}


class Reporter(Protocol):
    """Shows events as they come; a context manager that leaves the terminal tidy."""

    def __enter__(self) -> Reporter:
        """Begin to show."""
        ...

    def __exit__(self, *_: object) -> None:
        """Take away whatever was only for the meantime."""
        ...

    def progress(self, progress: Progress) -> None:
        """Show what is going on."""
        ...

    def update(self, update: HunksUpdate) -> None:
        """Show how far the answer has come."""
        ...


class LiveReporter:
    """On a terminal: a status line, and above it the diff as it grows."""

    def __init__(self, console: Console, text: str) -> None:
        self._console = console
        self._text = text
        self._lines = LineIndex(text)
        self._spinner = Spinner("dots", Text("starting"))
        self._live = Live(self._spinner, console=console, transient=True, refresh_per_second=10)

    def __enter__(self) -> LiveReporter:
        """Begin to show."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the live part away; the final diff is printed by itself."""
        self._live.stop()

    def progress(self, progress: Progress) -> None:
        """Show the phase in the status line."""
        self._spinner.update(text=Text(progress_text(progress), no_wrap=True, overflow="ellipsis"))

    def update(self, update: HunksUpdate) -> None:
        """Show the end of the diff, as much as fits above the status line."""
        rows = diff_rows(self._text, self._lines, update.hunks)
        room = max(self._console.height - 3, 5)
        self._live.update(Group(*rows[-room:], self._spinner))


class LineReporter:
    """Anywhere else: a line on a change of phase and every few seconds in a long one."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase = ""
        self._shown_at = 0.0

    def __enter__(self) -> LineReporter:
        """Begin to show."""
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to take away."""

    def progress(self, progress: Progress) -> None:
        """Print the phase, unless it was printed just now."""
        now = time.monotonic()
        if progress.phase == self._phase and now - self._shown_at < _SECONDS_BETWEEN_LINES:
            return
        self._phase, self._shown_at = progress.phase, now
        self._console.print(Text(progress_text(progress)), soft_wrap=True)

    def update(self, update: HunksUpdate) -> None:
        """The diff is printed once, at the end."""


def progress_text(progress: Progress) -> str:
    """One line: the phase in words, percent and detail where known."""
    words = _PHASES.get(progress.phase, progress.phase)
    percent = "" if progress.fraction is None else f" {progress.fraction:.0%}"
    detail = f" ({printable(progress.detail)})" if progress.detail else ""
    return f"{words}{percent}{detail}"


def diff_rows(text: str, lines: LineIndex, hunks: Sequence[Hunk]) -> list[Text]:
    """The hunks as coloured rows with line numbers and a little context, in order."""
    rows: list[Text] = []
    shown = 0  # number of the last line of the old text that has a row
    for edit in line_edits(text, lines, hunks):
        end = edit.old_line + len(edit.old)
        before = range(max(edit.old_line - _CONTEXT, shown + 1), edit.old_line)
        if rows and before.start > shown + 1:
            rows.append(Text("   ...", style="dim"))
        rows.extend(_context(text, lines, before, edit.new_line - edit.old_line))
        rows.extend(_row(edit.old_line + i, "-", line, "red") for i, line in enumerate(edit.old))
        rows.extend(_row(edit.new_line + i, "+", line, "green") for i, line in enumerate(edit.new))
        shown = end - 1
    return rows


def edits_summary(edits: Sequence[LineEdit]) -> str:
    """E.g. `3 hunks, 5 lines removed, 6 added`."""
    removed, added = sum(len(e.old) for e in edits), sum(len(e.new) for e in edits)
    count = f"{len(edits)} hunk" + ("" if len(edits) == 1 else "s")
    return f"{count}, {removed} line{'' if removed == 1 else 's'} removed, {added} added"


def statistics_line(stats: Mapping[str, Any]) -> str:
    """One line of what the answer cost; another server's statistics may lack some of it."""
    parts: list[str] = []

    def add(form: str, *keys: str) -> None:
        values = [stats.get(key) for key in keys]
        if all(isinstance(value, int | float) for value in values):
            parts.append(form.format(*values))

    add("{} tokens", "tokens")
    add("prefill {:.1f} s", "prefill_seconds")
    add("decode {:.1f} s", "decode_seconds")
    add("{:.1f} tokens/s", "tokens_per_second")
    add("{} passes", "passes")
    add("{:.1f} tokens per pass", "tokens_per_pass")
    if stats.get("drafted"):
        accepted = stats.get("accepted", 0)
        share = accepted / stats["drafted"]
        parts.append(f"{accepted} of {stats['drafted']} drafted tokens accepted ({share:.0%})")
    return ", ".join(parts)


def printable(text: str) -> str:
    """Source text may hold control characters; none may reach the terminal."""
    return "".join(
        c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in text
    ).expandtabs(4)


def _context(text: str, lines: LineIndex, numbers: range, moved: int) -> list[Text]:
    return [
        _row(n + moved, " ", text[lines.line_start(n - 1) : lines.line_end(n - 1)], "dim")
        for n in numbers
    ]


def _row(number: int, mark: str, line: str, style: str) -> Text:
    return Text(
        f"{number:>6} {mark} {printable(line)}", style=style, no_wrap=True, overflow="ellipsis"
    )
