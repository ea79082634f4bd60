"""Answers that are written at once, in turns of a pass or a step of prefill."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from engine.core import (
    Cancelled,
    Event,
    Finished,
    GenerationRequest,
    Generator,
    Progress,
    TextDelta,
    Tick,
)
from engine.server.job import Job

MOST_AT_ONCE = 4
"""More would make every one of them slow, and each holds a KV cache."""


@dataclass(slots=True)
class Turn:
    """One answer that is being written.

    Attributes:
        job: whose answer.
        events: where it comes from; each `next` is one turn.
        activity: what it does.
        first_text_after: seconds from the request to the first text, once that came.
    """

    job: Job
    events: Iterator[Event]
    activity: Progress | None = None
    first_text_after: float | None = None

    def take(self) -> Event | Cancelled:
        """Run until the next event.

        Raises:
            Whatever the generator raises.
        """
        # Asked before and after, for a generator that forgets to.
        if self.job.cancelled.is_set():
            return Cancelled()
        event = next(self.events, None)
        if event is None:
            raise RuntimeError("the generator ended without a Finished")
        if self.job.cancelled.is_set():
            return Cancelled()
        if isinstance(event, TextDelta) and self.first_text_after is None:
            self.first_text_after = time.monotonic() - self.job.submitted
        if not isinstance(event, Finished | Tick):
            self.activity = event if isinstance(event, Progress) else Progress("writing")
        return event

    def close(self) -> None:
        """Let the generator clean up."""
        close = getattr(self.events, "close", None)
        if close is not None:
            close()


def fits(generator: Generator | None, request: GenerationRequest, turns: list[Turn]) -> bool:
    """Return whether `request` may be answered beside those that are.

    A generator says so by `fits_beside(request, others)`; one without answers in turn.
    """
    if not turns:
        return True
    asked = getattr(generator, "fits_beside", None)
    if asked is None or len(turns) >= MOST_AT_ONCE:
        return False
    return bool(asked(request, [turn.job.request for turn in turns]))
