"""Turns a call that reports through a callback into an iterator of its reports."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from engine.core import OnProgress, Progress

T = TypeVar("T")


def with_progress(work: Callable[[OnProgress], T]) -> Generator[Progress, None, T]:
    """Run `work(on_progress)` on a thread; yield its progress, return its result.

    Only the latest report is kept when the consumer is slower than the work. Closing the
    iterator does not stop the work, which has its own cancellation, but waits for its
    end: two loads at once could need twice the memory.

    Raises:
        Whatever `work` raised.
    """
    call = _Call(work)
    thread = threading.Thread(target=call.run, name="redraft-load", daemon=True)
    thread.start()
    try:
        while (progress := call.next_report()) is not None:
            yield progress
    finally:
        thread.join()
    return call.result()


class _Call(Generic[T]):
    """One call and the latest that it said."""

    def __init__(self, work: Callable[[OnProgress], T]) -> None:
        self._work = work
        self._changed = threading.Condition()
        self._report: Progress | None = None
        self._ended = False
        self._error: BaseException | None = None
        self._results: list[T] = []

    def run(self) -> None:
        try:
            self._results.append(self._work(self._put))
        except BaseException as error:  # handed to the consumer, which raises it
            self._error = error
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _put(self, progress: Progress) -> None:
        with self._changed:
            self._report = progress
            self._changed.notify()

    def next_report(self) -> Progress | None:
        """Wait for a report that was not seen yet; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._report is not None or self._ended)
            report, self._report = self._report, None
            return report

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._results.pop()
