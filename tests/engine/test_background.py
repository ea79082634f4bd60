from __future__ import annotations

import threading

import pytest

from engine.background import with_progress
from engine.core import Progress


def report(number: int) -> Progress:
    return Progress("loading", None, str(number))


def collect(work):
    """Return all reports that a consumer sees, and the result."""
    events = with_progress(work)
    seen = []
    while True:
        try:
            seen.append(next(events))
        except StopIteration as end:
            return seen, end.value


def test_reports_come_in_order_and_the_result_at_the_end() -> None:
    seen, result = collect(lambda say: [say(report(n)) for n in range(3)] and "loaded")
    assert seen == sorted(seen, key=lambda progress: int(progress.detail))
    assert seen[-1] == report(2)
    assert result == "loaded"


def test_a_slow_consumer_gets_the_latest_report_and_the_work_never_waits_for_it() -> None:
    first_seen, all_said = threading.Event(), threading.Event()

    def work(say):
        say(report(0))
        assert first_seen.wait(10)
        for number in range(1, 200):
            say(report(number))
        all_said.set()

    events = with_progress(work)
    assert next(events) == report(0)
    first_seen.set()
    assert all_said.wait(10)
    assert list(events) == [report(199)]


def test_what_the_work_raises_reaches_the_consumer() -> None:
    def work(say):
        say(report(0))
        raise ValueError("broken file")

    with pytest.raises(ValueError, match="broken file"):
        list(with_progress(work))


def test_closing_early_waits_for_the_end_of_the_work() -> None:
    closing, ended = threading.Event(), threading.Event()

    def work(say):
        for number in range(100):
            say(report(number))
        assert closing.wait(10)
        say(report(100))
        ended.set()

    events = with_progress(work)
    next(events)
    threading.Timer(0.05, closing.set).start()
    events.close()
    assert ended.is_set()
