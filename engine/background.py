"""Turns a call that reports through a callback into an iterator of its reports."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from engine.core import OnProgress, Progress

T = TypeVar("T")

_DONE = object()


def with_progress(work: Callable[[OnProgress], T]) -> Generator[Progress, None, T]:
    """Run `work(on_progress)` on a thread; yield its progress, return its result.

    Only the latest report is kept when the consumer is slower than the work. The
    consumer must run the iterator to its end: the work is stopped by its own
    cancellation, not by closing the iterator.

    Raises:
        Whatever `work` raised.
    """
    reports: queue.Queue[Any] = queue.Queue(maxsize=16)
    outcome: dict[str, Any] = {}

    def report(progress: Progress) -> None:
        try:
            reports.put_nowait(progress)
        except queue.Full:
            return

    def run() -> None:
        try:
            outcome["result"] = work(report)
        except BaseException as error:  # handed to the consumer, which raises it
            outcome["error"] = error
        reports.put(_DONE)

    thread = threading.Thread(target=run, name="redraft-load", daemon=True)
    thread.start()
    while (item := reports.get()) is not _DONE:
        yield item
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["result"]
