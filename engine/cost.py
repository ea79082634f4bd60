"""What a pass costs on this device: seconds for each window size and context length.

The staircase differs from device to device: a GPU charges nothing for rows until its
arithmetic is busy, a CPU charges every row after the first few. So it is measured when a
model is loaded, and corrected by every pass that runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128)
CONTEXTS = (64, 512, 2048)

PACE = 0.2
"""Share of a pass's own time in the running correction of all windows."""

LEARNING = 0.03
"""The same for the window that it had, of what is then left to explain. Slow: while other
work wants the cores all passes take longer, and a window that happens to run just then must
not look dear beside one that does not."""

BRANCH_LEARNING = 0.1
"""The same for what a side branch adds."""

BRANCH_FADING = 0.01
"""Share of the cost of side branches that is forgotten in a pass without any."""

MOST_BRANCH = 0.5
"""A side branch is never taken to add more than this share of a pass."""

LIMITS = (0.5, 2.0)
"""A single pass that took less or more than this, of what was expected, counts as this."""


class PassPoint(NamedTuple):
    """The median time of a pass.

    Attributes:
        window: rows of the pass.
        context: tokens in the KV cache before it.
        seconds: median.
        samples: how many passes the median is of.
    """

    window: int
    context: int
    seconds: float
    samples: int


class CostModel:
    """Seconds of a pass, between and beyond the measured points by straight lines.

    Never less for more rows or, up to the largest measured window, for more context: where
    a measurement says so, it is noise.

    Args:
        points: measured, at least one; the same windows for every context.

    Attributes:
        branch: what each side branch of a token tree adds to a pass of as many rows, as a
            share of its seconds; learnt from the passes that run, 0 before the first.
    """

    def __init__(self, points: Iterable[PassPoint]) -> None:
        self._points = tuple(sorted(points, key=lambda p: (p.context, p.window)))
        if not self._points:
            raise ValueError("a cost model needs a point")
        self._windows = sorted({p.window for p in self._points})
        self._contexts = sorted({p.context for p in self._points})
        measured = {(p.window, p.context): p.seconds for p in self._points}
        if len(measured) != len(self._windows) * len(self._contexts):
            raise ValueError("every context needs the same windows")
        below = [0.0] * len(self._windows)
        self._rows: list[list[float]] = []
        for context in self._contexts:
            row = accumulate((measured[w, context] for w in self._windows), max)
            below = [max(pair) for pair in zip(row, below, strict=True)]
            self._rows.append(below)
        self._factors = [1.0] * len(self._windows)
        self._pace = 1.0
        self.branch = 0.0

    def seconds(self, window: int, context: int) -> float:
        """Return what a pass of `window` rows over `context` tokens takes."""
        return self.staircase(context, window)[-1]

    def staircase(self, context: int, longest: int) -> list[float]:
        """Return the seconds of passes of 1, 2, ..., `longest` rows over `context` tokens."""
        corrected = accumulate(
            (
                self._pace * factor * _line(self._contexts, [row[i] for row in self._rows], context)
                for i, factor in enumerate(self._factors)
            ),
            max,
        )
        at_windows = list(corrected)
        return [_line(self._windows, at_windows, window) for window in range(1, longest + 1)]

    def observe(self, window: int, context: int, seconds: float, branches: int = 0) -> None:
        """Learn from a pass that ran, of a tree with so many side branches."""
        expected = self.seconds(window, context)
        if expected <= 0.0 or seconds <= 0.0:
            return
        ratio = min(max(seconds / expected, LIMITS[0]), LIMITS[1])
        if branches:
            self.branch += BRANCH_LEARNING * ((ratio - 1.0) / branches - self.branch)
            self.branch = min(max(self.branch, 0.0), MOST_BRANCH)
            return
        # Other passes make it fade, so that branches are tried again.
        self.branch *= 1.0 - BRANCH_FADING
        pace = 1.0 + PACE * (ratio - 1.0)
        self._pace *= pace
        step = 1.0 + LEARNING * (ratio / pace - 1.0)
        # Both windows that the pass stands between, each by how near it is.
        low, share = _place(self._windows, window)
        self._factors[low] *= step ** (1.0 - share)
        if share:
            self._factors[low + 1] *= step**share

    def points(self) -> list[PassPoint]:
        """Return the measured points, with what was learnt of single windows since."""
        return [
            p._replace(seconds=p.seconds * self._factors[self._windows.index(p.window)])
            for p in self._points
        ]


def measure(
    time_pass: Callable[[int, int], float],
    longest: int,
    budget_seconds: float,
    clock: Callable[[], float],
    rounds: int = 5,
) -> CostModel:
    """Measure the staircase within a budget of time.

    Every round times each window at each context once, so that a moment of noise spreads
    over all of them; the first round is always finished.

    Args:
        time_pass: takes window and context, runs (or samples) such a pass, returns seconds.
        longest: most rows of a pass.
        budget_seconds: no round is begun that would end later, judged by the one before.
        clock: in seconds.
        rounds: most rounds.
    """
    windows = sorted({min(w, longest) for w in WINDOWS})
    times: dict[tuple[int, int], list[float]] = {(w, c): [] for c in CONTEXTS for w in windows}
    started = clock()
    for done in range(1, rounds + 1):
        for (window, context), seen in times.items():
            seen.append(time_pass(window, context))
        spent = clock() - started
        if spent + spent / done > budget_seconds:
            break
    return CostModel(
        PassPoint(w, c, sorted(seen)[len(seen) // 2], len(seen)) for (w, c), seen in times.items()
    )


def to_json(cost: CostModel) -> list[Mapping[str, float]]:
    """Return the points in a form that `from_json` reads."""
    return [point._asdict() for point in cost.points()]


def from_json(points: object) -> CostModel | None:
    """Return a cost model kept by an earlier run, or None where it cannot be used."""
    try:
        read = [
            PassPoint(int(p["window"]), int(p["context"]), float(p["seconds"]), int(p["samples"]))
            for p in points  # type: ignore[attr-defined]
        ]
        if not all(0.0 < p.seconds < 3600.0 and p.window > 0 and p.context >= 0 for p in read):
            return None
        return CostModel(read)
    except (TypeError, KeyError, ValueError):
        return None


def even(per_row: float = 0.05) -> CostModel:
    """Return a cost model where nothing is known: every row adds the same to a pass."""
    return CostModel(PassPoint(w, 0, 1.0 + per_row * w, 0) for w in WINDOWS)


def _place(xs: Sequence[int], x: int) -> tuple[int, float]:
    """Return the index of the last of `xs` not above `x`, and the way to the next, 0 to 1."""
    low = max(bisect_right(xs, x) - 1, 0)
    if low + 1 >= len(xs) or x <= xs[low]:
        return low, 0.0
    return low, (x - xs[low]) / (xs[low + 1] - xs[low])


def _line(xs: Sequence[int], ys: Sequence[float], x: int) -> float:
    """Return y at `x`: on the line between two points, or going on behind the last."""
    if len(xs) == 1 or x <= xs[0]:
        return ys[0]
    low = min(bisect_right(xs, x) - 1, len(xs) - 2)
    way = (x - xs[low]) / (xs[low + 1] - xs[low])
    # In this form the points themselves come out as they are, to the last bit.
    return (1.0 - way) * ys[low] + way * ys[low + 1]
