"""Progress of a download: bytes, size and speed, said a few times a second."""

from __future__ import annotations

import time
from collections import deque

from engine.core import OnProgress, Progress

_WINDOW = 5.0  # seconds over which the speed is measured
_PAUSE = 0.2  # seconds between two reports


class Meter:
    """Tells `on_progress` how far a download is.

    Args:
        total: size in bytes, or 0 where it is not known.
        done: bytes that were there before, which do not count for the speed.
    """

    def __init__(self, on_progress: OnProgress, total: int, done: int = 0) -> None:
        self._on_progress = on_progress
        self._total = total
        self._samples: deque[tuple[float, int]] = deque([(time.monotonic(), done)])
        self._said = 0.0

    def at(self, done: int) -> None:
        """`done` bytes are there now."""
        now = time.monotonic()
        if now - self._said < _PAUSE and done < self._total:
            return
        self._said = now
        self._samples.append((now, done))
        while len(self._samples) > 2 and now - self._samples[0][0] > _WINDOW:
            self._samples.popleft()
        since, before = self._samples[0]
        speed = max(0, done - before) / max(now - since, 1e-3)
        fraction = min(1.0, done / self._total) if self._total else None
        self._on_progress(Progress("fetching", fraction, describe(done, self._total, speed)))


def describe(done: int, total: int, speed: float) -> str:
    """E.g. `412 of 1117 MB, 18 MB/s`; `speed` in bytes a second."""
    amount = f"{done / 1e6:.0f} of {total / 1e6:.0f} MB" if total else f"{done / 1e6:.0f} MB"
    unit = f"{speed / 1e6:.0f} MB/s" if speed >= 1e7 else f"{speed / 1e6:.1f} MB/s"
    return f"{amount}, {unit}"
