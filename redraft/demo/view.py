"""What the demo shows: progress, the diff as it comes, and both runs in a table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from lsp_server.core import Hunk, HunksUpdate, Progress
from lsp_server.text.positions import LineIndex
from redraft import render


class Run(NamedTuple):
    """One rewrite as the editor saw it; times in seconds since the request."""

    text: str
    hunks: tuple[Hunk, ...]
    stats: Mapping[str, Any]
    seconds: float
    first_hunk: float | None


class View:
    """Shows the events of one rewrite after another; a context manager round each."""

    def __init__(self, console: Console, text: str) -> None:
        self._console = console
        self._text = text
        self._reporter: render.Reporter = render.LineReporter(console)
        self._printed: list[str] = []
        self.prints_rows = True  # where there is no terminal; the same diff twice helps nobody
        self.first_hunk_at: float | None = None

    def __enter__(self) -> None:
        """Begin to show a rewrite."""
        self.first_hunk_at, self._printed = None, []
        if self._console.is_terminal:
            self._reporter = render.LiveReporter(self._console, self._text)
        self._reporter.__enter__()

    def __exit__(self, *details: object) -> None:
        """Take away what was only for the meantime."""
        self._reporter.__exit__(*details)

    def event(self, event: Progress | HunksUpdate) -> None:
        """Show one event."""
        if isinstance(event, Progress):
            self._reporter.progress(event)
            return
        if self.first_hunk_at is None:
            self.first_hunk_at = time.perf_counter()
        if self._console.is_terminal:
            self._reporter.update(event)
        elif self.prints_rows:
            self._print_new_rows(event.hunks[:-1])  # the last one may still grow

    def show_rest(self, hunks: Sequence[Hunk]) -> None:
        """Print what is not on the screen yet of the final diff."""
        if not self._print_new_rows(hunks):
            self._printed = []
            self._console.print("The final diff:")
            self._print_new_rows(hunks)

    def _print_new_rows(self, hunks: Sequence[Hunk]) -> bool:
        """Print the rows that follow the printed ones; False when those have changed."""
        rows = render.diff_rows(self._text, LineIndex(self._text), hunks)
        plain, done = [row.plain for row in rows], len(self._printed)
        if plain[:done] != self._printed:
            return False
        for row in rows[done:]:
            self._console.print(row, soft_wrap=True)
        self._printed = plain
        return True


def table(drafted: Run, plain: Run) -> Table:
    """Both runs side by side; a ratio above 1 is in favour of the drafts."""
    rows = Table("", "with drafts", "without", "ratio")
    for name, key, form, better in (
        ("tokens", "tokens", "{}", None),
        ("prefill, seconds", "prefill_seconds", "{:.2f}", None),
        ("decode, seconds", "decode_seconds", "{:.2f}", "less"),
        ("tokens/s", "tokens_per_second", "{:.1f}", "more"),
        ("passes", "passes", "{}", "less"),
        ("tokens per pass", "tokens_per_pass", "{:.2f}", "more"),
    ):
        left, right = drafted.stats.get(key), plain.stats.get(key)
        if left is None or right is None:
            continue
        ratio = ""
        if better and left and right:
            ratio = f"{(right / left) if better == 'less' else (left / right):.2f}x"
        rows.add_row(name, form.format(left), form.format(right), ratio)
    first = ("-" if r.first_hunk is None else f"{r.first_hunk:.2f}" for r in (drafted, plain))
    rows.add_row("first hunk after, seconds", *first, "")
    rows.add_row("all, seconds", f"{drafted.seconds:.2f}", f"{plain.seconds:.2f}", "")
    return rows
