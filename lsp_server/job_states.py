"""The states of a job and the steps between them, as one table. Data only.

The diagram under "The states of a job" in ARCHITECTURE.md is this table; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class JobState(str, Enum):
    """Where a job stands.

    The buffer is as it was in all of them, except that hunks accepted one by one are in it
    from the acceptance on, and in `ACCEPTED` all that were accepted are.
    """

    QUEUED = "queued"
    WARMING = "warming"
    WRITING = "writing"
    REVIEW = "review"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    FAILED = "failed"
    STALE = "stale"


_STOPS = {JobState.CANCELLED, JobState.FAILED, JobState.STALE}

TRANSITIONS: Mapping[JobState, frozenset[JobState]] = {
    JobState.QUEUED: frozenset({JobState.WARMING, JobState.WRITING, JobState.REVIEW, *_STOPS}),
    JobState.WARMING: frozenset({JobState.WRITING, JobState.REVIEW, *_STOPS}),
    JobState.WRITING: frozenset({JobState.REVIEW, *_STOPS}),
    JobState.REVIEW: frozenset({JobState.ACCEPTED, JobState.REJECTED, *_STOPS}),
    JobState.ACCEPTED: frozenset(),
    JobState.REJECTED: frozenset(),
    JobState.CANCELLED: frozenset(),
    JobState.FAILED: frozenset(),
    JobState.STALE: frozenset(),
}
ACTIVE = frozenset({JobState.QUEUED, JobState.WARMING, JobState.WRITING})
ENDED = frozenset(state for state, steps in TRANSITIONS.items() if not steps)
