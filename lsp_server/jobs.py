"""Jobs: one rewrite each, from the question to the user's decision. No I/O, no LSP types.

A job moves along the table in `job_states` and nowhere else. A job that has ended leaves the table
at once; what is remembered of it is how it ended, so that a late accept can be told.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lsp_server.core import Hunk, RewriteError, RewriteRequest, RewriteResult, Span
from lsp_server.job_states import ACTIVE, TRANSITIONS, JobState
from lsp_server.text.document import AppliedChange
from lsp_server.text.shift import shift_span

MAX_IN_REVIEW = 64
MAX_ACTIVE = 32
MAX_ENDED_REMEMBERED = 256

STALE_MESSAGE = "The text was changed while it was being rewritten; ask again."


class JobEnd(NamedTuple):
    """How a job ended: its last state, and a sentence for people or nothing."""

    state: JobState
    message: str = ""


@dataclass(slots=True, eq=False)
class Job:
    """One rewrite.

    Attributes:
        span: where the rewritten text is now, in the mirror's text.
        base: where the span began in the text that `hunks` refer to.
        old_text: what the span must still hold for the hunks to make sense.
        hunks: in the coordinates of `base`; see `hunks_now`.
        apply: send the edit as soon as the answer is complete.
        stop: why the work was stopped from outside, where it was.
        touched: the span's inside was changed while an edit was on its way.
        token: the work-done progress token under which the client sees the job.
        failure: what the client's request fails with, where the job could not begin.
    """

    id: str
    uri: str
    version: int | None
    request: RewriteRequest
    span: Span
    base: int
    old_text: str
    apply: bool = False
    state: JobState = JobState.QUEUED
    hunks: tuple[Hunk, ...] = ()
    result: RewriteResult | None = None
    applied: bool = False
    applying: bool = False
    touched: bool = False
    message: str = ""
    stop: JobEnd | None = None
    token: str | int | None = None
    failure: RewriteError | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Whether the engine may still be at work for this job."""
        return self.state in ACTIVE

    def hunks_now(self, hunks: tuple[Hunk, ...] | None = None) -> tuple[Hunk, ...]:
        """The job's hunks, or the given ones, at their place in the mirror's text now."""
        by = self.span.start - self.base
        chosen = self.hunks if hunks is None else hunks
        if by == 0:
            return chosen
        return tuple(h._replace(start=h.start + by, end=h.end + by) for h in chosen)


class JobTable:
    """The jobs that have not ended, oldest first, bounded."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._ended: OrderedDict[str, JobEnd] = OrderedDict()
        self._count = 0

    def __iter__(self) -> Iterator[Job]:
        return iter(tuple(self._jobs.values()))

    def __len__(self) -> int:
        return len(self._jobs)

    def new_id(self) -> str:
        """A name that no other job of this server has had."""
        self._count += 1
        return f"job-{self._count}"

    def get(self, job_id: str) -> Job | None:
        """The job of this name, unless it has ended or never was."""
        return self._jobs.get(job_id)

    def end_of(self, job_id: str) -> JobEnd | None:
        """How the job of this name ended, as far back as that is remembered."""
        return self._ended.get(job_id)

    def in_document(self, uri: str) -> tuple[Job, ...]:
        """All jobs of one document."""
        return tuple(job for job in self._jobs.values() if job.uri == uri)

    def with_token(self, token: str | int) -> Job | None:
        """The job that the client knows by this progress token."""
        return next((job for job in self._jobs.values() if job.token == token), None)

    def check_free(self, job_id: str, uri: str, span: Span) -> None:
        """Raise RewriteError when a job of this name or on this span cannot begin now."""
        named = self._jobs.get(job_id)
        if named is not None and named.stop is None:
            raise RewriteError("job_id_taken", f"There already is a job named {job_id!r}.")
        if sum(job.active for job in self._jobs.values()) >= MAX_ACTIVE:
            raise RewriteError(
                "too_many_jobs", f"{MAX_ACTIVE} rewrites are at work; wait for one to end."
            )
        for job in self.in_document(uri):
            # A job that is being stopped will not touch the lines any more.
            if job.stop is not None or not _overlap(job.span, span):
                continue
            if job.active or job.applying:
                raise RewriteError(
                    "busy", "A rewrite of these lines is at work; wait for it, or cancel it."
                )
            raise RewriteError(
                "in_review",
                "A rewrite of these lines waits for your decision; accept or reject it first.",
            )

    def add(self, job: Job) -> None:
        """Put a job into the table; `check_free` must have passed."""
        self.check_free(job.id, job.uri, job.span)
        self._ended.pop(job.id, None)
        self._jobs[job.id] = job
        self._jobs.move_to_end(job.id)

    def move(self, job: Job, state: JobState, message: str = "") -> tuple[Job, ...]:
        """Take a job to another state and return jobs that were dropped to make room.

        Raises ValueError for a step that `TRANSITIONS` does not have.
        """
        if state is job.state:
            return ()
        if state not in TRANSITIONS[job.state]:
            raise ValueError(f"a job cannot go from {job.state.value} to {state.value}")
        job.state = state
        if not TRANSITIONS[state]:
            self._forget(job, JobEnd(state, message))
            return ()
        if state is not JobState.REVIEW:
            return ()
        # The newest in review goes last, so that the oldest decision is the first to go.
        self._jobs.move_to_end(job.id)
        waiting = [j for j in self._jobs.values() if j.state is JobState.REVIEW and not j.applying]
        dropped = tuple(waiting[: max(0, len(waiting) - MAX_IN_REVIEW)])
        for old in dropped:
            self.move(old, JobState.REJECTED, "Too many rewrites waited for a decision.")
        return dropped

    def _forget(self, job: Job, end: JobEnd) -> None:
        if self._jobs.get(job.id, job) is not job:
            return  # a new job has taken the name of one that was being stopped
        self._jobs.pop(job.id, None)
        self._ended[job.id] = end
        while len(self._ended) > MAX_ENDED_REMEMBERED:
            self._ended.popitem(last=False)

    def follow_change(self, uri: str, change: AppliedChange) -> tuple[Job, ...]:
        """Move the document's spans along with a change; return the jobs that it broke."""
        broken: list[Job] = []
        for job in self.in_document(uri):
            moved = shift_span(job.span, change)
            if moved is not None:
                job.span = moved
            elif job.applying:
                job.touched = True
            else:
                broken.append(job)
        return tuple(broken)


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.end and other.start < one.end
