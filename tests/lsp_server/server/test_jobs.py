"""The job table: allowed steps, bounds, spans that move."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from lsp_server.core import Hunk, RewriteError, RewriteRequest, Span
from lsp_server.job_states import ACTIVE, ENDED, TRANSITIONS, JobState
from lsp_server.jobs import (
    MAX_ACTIVE,
    MAX_ENDED_REMEMBERED,
    MAX_IN_REVIEW,
    Job,
    JobEnd,
    JobTable,
)
from lsp_server.text.document import AppliedChange


def _job(name: str, start: int = 0, end: int = 10, uri: str = "a") -> Job:
    span = Span(start, end)
    request = RewriteRequest("x" * 100, span, "python", "do")
    return Job(name, uri, 1, request, span, start, "x" * (end - start))


@pytest.mark.parametrize(("before", "after"), [*itertools.product(JobState, JobState)])
def test_only_the_steps_of_the_table_are_taken(before: JobState, after: JobState) -> None:
    table, job = JobTable(), _job("j")
    table.add(job)
    job.state = before
    if after in TRANSITIONS[before]:
        table.move(job, after)
        assert job.state is after
    elif after is not before:
        with pytest.raises(ValueError, match="cannot go from"):
            table.move(job, after)
        assert job.state is before


def test_the_table_of_steps_is_complete_and_ends_where_it_should() -> None:
    assert set(TRANSITIONS) == set(JobState)
    ended = ("accepted", "rejected", "cancelled", "failed", "stale")
    assert {state for state in JobState if not TRANSITIONS[state]} == set(map(JobState, ended))
    for state in ACTIVE:
        assert {JobState.CANCELLED, JobState.FAILED, JobState.STALE} <= TRANSITIONS[state]
    assert JobState.ACCEPTED not in TRANSITIONS[JobState.WRITING]


@pytest.mark.parametrize("end", sorted(ENDED))
def test_a_job_that_has_ended_leaves_the_table_and_its_end_is_remembered(end: JobState) -> None:
    table, job = JobTable(), _job("j")
    table.add(job)
    job.state = JobState.REVIEW
    table.move(job, end, "why")
    assert (len(table), table.get("j")) == (0, None)
    assert table.end_of("j") == JobEnd(end, "why")


def test_at_most_so_many_wait_in_review_and_the_oldest_goes() -> None:
    table = JobTable()
    dropped: list[str] = []
    for number in range(MAX_IN_REVIEW + 3):
        job = _job(f"j{number}", number * 10, number * 10 + 10)
        table.add(job)
        dropped += [old.id for old in table.move(job, JobState.REVIEW)]
    assert len(table) == MAX_IN_REVIEW
    assert dropped == ["j0", "j1", "j2"]
    end = table.end_of("j0")
    assert end is not None
    assert end.state is JobState.REJECTED


def test_at_most_so_many_are_at_work() -> None:
    table = JobTable()
    for number in range(MAX_ACTIVE):
        table.add(_job(f"j{number}", number * 10, number * 10 + 10))
    with pytest.raises(RewriteError, match="wait for one to end") as caught:
        table.add(_job("more", 990, 1000))
    assert caught.value.code == "too_many_jobs"


def test_the_memory_of_ended_jobs_is_bounded() -> None:
    table = JobTable()
    for number in range(MAX_ENDED_REMEMBERED + 1):
        job = _job(f"j{number}")
        table.add(job)
        table.move(job, JobState.CANCELLED)
    assert table.end_of("j0") is None
    assert table.end_of("j1") == JobEnd(JobState.CANCELLED)


@pytest.mark.parametrize(
    ("start", "end", "uri", "code"),
    [
        (0, 10, "a", "busy"),
        (9, 20, "a", "busy"),
        (2, 5, "a", "busy"),
        (10, 20, "a", None),
        (0, 10, "b", None),
    ],
)
def test_one_job_an_overlapping_span(start: int, end: int, uri: str, code: str | None) -> None:
    table = JobTable()
    table.add(_job("one"))
    if code is None:
        table.add(_job("two", start, end, uri))
        assert len(table) == 2
        return
    with pytest.raises(RewriteError) as caught:
        table.add(_job("two", start, end, uri))
    assert caught.value.code == code


def test_a_job_that_is_being_stopped_is_in_nobodys_way_and_cannot_end_its_successor() -> None:
    table, old, new = JobTable(), _job("j"), _job("j")
    table.add(old)
    old.stop = JobEnd(JobState.CANCELLED)
    table.add(new)
    table.move(old, JobState.CANCELLED)
    assert table.get("j") is new
    assert table.end_of("j") is None


def test_spans_and_hunks_move_with_changes_before_them_and_break_with_changes_inside() -> None:
    table, one, two = JobTable(), _job("one", 10, 20), _job("two", 30, 40)
    two.hunks = (Hunk("h1", 31, 33, "xx", "y"),)
    table.add(one)
    table.add(two)
    assert table.follow_change("a", AppliedChange(0, 2, "12345\n")) == ()
    assert (one.span, two.span) == (Span(14, 24), Span(34, 44))
    assert two.hunks_now() == (Hunk("h1", 35, 37, "xx", "y"),)
    assert table.follow_change("b", AppliedChange(15, 16, "")) == ()
    assert table.follow_change("a", AppliedChange(15, 16, "")) == (one,)
    assert two.span == Span(33, 43)


def test_a_change_inside_while_the_edit_is_on_its_way_is_only_noted() -> None:
    table, job = JobTable(), _job("j", 10, 20)
    table.add(job)
    job.applying = True
    assert table.follow_change("a", AppliedChange(15, 16, "")) == ()
    assert job.touched is True


def test_the_diagram_in_the_architecture_is_the_table_of_steps() -> None:
    text = (Path(__file__).parents[3] / "ARCHITECTURE.md").read_text("utf-8")
    diagram = text.split("```mermaid\nstateDiagram-v2\n", 1)[1].split("```", 1)[0]
    drawn: dict[str, set[str]] = {}
    for line in diagram.strip().splitlines():
        before, after = line.split(" --> ")
        drawn.setdefault(before.strip(), set()).add(after.strip())
    table = {state.value: {step.value for step in steps} for state, steps in TRANSITIONS.items()}
    expected = {before: after or {"[*]"} for before, after in table.items()}
    assert drawn == {"[*]": {"queued"}, **expected}
