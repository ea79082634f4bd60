"""Draws the measured cost staircase; needs matplotlib, the optional extra `plot`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.health_check import Report

KINDS = (".png", ".svg")


class CannotDraw(Exception):
    """There will be no picture.

    Attributes:
        message: why, and what to do, in one sentence.
        code: as in `redraft.exit_codes`.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def check(file: Path) -> None:
    """Look, before anything is measured, whether the picture can be drawn and written.

    Raises:
        CannotDraw: it cannot.
    """
    if file.suffix.lower() not in KINDS:
        raise CannotDraw(f"{file.name} must end in .png or .svg.", "usage")
    if not _is_installed("matplotlib"):
        raise CannotDraw("A picture needs matplotlib; run pip install 'redraft[plot]'.", "usage")
    if not file.absolute().parent.is_dir():
        raise CannotDraw(f"{file} cannot be written: its folder is missing.", "file_unwritable")


def draw(report: Report, file: Path) -> None:
    """Draw milliseconds a pass and rows a second over the rows of a pass, into `file`.

    Raises:
        CannotDraw: the file cannot be written.
    """
    from matplotlib.figure import Figure  # pyright: ignore[reportMissingImports] - optional

    from engine.health_check import contexts_of

    # A Figure of its own, not pyplot: no window system is asked for, and nothing stays behind.
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    cost, rate = figure.subplots(1, 2)
    windows = sorted({p.window for p in report.points})
    for context in contexts_of(report.points):
        points = sorted(p for p in report.points if p.context == context)
        rows, times = [p.window for p in points], [p.seconds for p in points]
        label = f"over {context:,} tokens"
        cost.plot(rows, [1000 * s for s in times], marker="o", label=label)
        rate.plot(rows, [r / s for r, s in zip(rows, times, strict=True)], marker="o", label=label)
    linear = [1000 * report.row_seconds * window for window in windows]
    cost.plot(windows, linear, "--", color="grey", linewidth=1, label="each row alone")
    cost.set_ylabel("milliseconds a pass")
    rate.set_ylabel("rows a second")
    cost.set_title("what a pass costs", fontsize="medium")
    rate.set_title("tokens a second where every draft is right", fontsize="medium")
    # The dear line must not flatten the others.
    cost.set_ylim(0, 1.15 * max(1000 * p.seconds for p in report.points))
    rate.set_ylim(bottom=0)
    for axes in (cost, rate):
        axes.set_xscale("log", base=2)
        axes.set_xticks(windows, [str(window) for window in windows])
        axes.set_xlabel("rows in a pass")
        axes.grid(alpha=0.3)
    cost.legend()
    figure.suptitle(
        f"{report.model}: {report.runner} on {report.device} in {report.dtype}, "
        f"{report.threads} threads"
    )
    try:
        figure.savefig(file, dpi=120)
    except OSError as error:
        raise CannotDraw(
            f"{file} cannot be written: {error.strerror}.", "file_unwritable"
        ) from error


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:  # it is switched off: None stands in its place
        return False
