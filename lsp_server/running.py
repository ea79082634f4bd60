"""Jobs at work, and the ways in which they are stopped or closed."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lsp_server.core import RewriteResult
from lsp_server.jobs import STALE_MESSAGE, Job, JobEnd, JobState
from lsp_server.progress import ProgressReporter
from lsp_server.streaming import HunkSender

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

logger = logging.getLogger(__name__)

TITLE_CHARS = 60


@dataclass(slots=True, eq=False)
class Running:
    """A job with what is at work for it.

    Attributes:
        outcome: the answer to the client, once there is one; cancelled by the client.
        announce: errors go to the user as messages, since no request waits for them.
    """

    job: Job
    sender: HunkSender
    progress: ProgressReporter
    outcome: asyncio.Future[dict[str, Any]]
    announce: bool
    started: float
    task: asyncio.Task[RewriteResult] | None = None


def short(instruction: str) -> str:
    """An instruction in one line that fits a title."""
    line = " ".join(instruction.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def stop_job(server: RedraftServer, job: Job, state: JobState, message: str = "") -> bool:
    """Stop a job that has not ended, and say why; False when it is too late for that."""
    running = server.running.get(job.id)
    if running is None or running.job is not job or job.applying or job.stop is not None:
        return False
    job.stop = JobEnd(state, message)
    if job.active and running.task is not None and not running.task.done():
        running.task.cancel()
    elif job.state is JobState.REVIEW:
        close_job(server, job, state, message)
    return True


def close_job(server: RedraftServer, job: Job, state: JobState, message: str = "") -> None:
    """End a job in review: accepted, rejected or overtaken by events."""
    dropped = server.session.jobs.move(job, state, message)
    running = server.running.pop(job.id, None)
    if running is not None:
        running.sender.finish(())
    drop_jobs(server, dropped)
    logger.info("%s: %s", job.id, state.value)


def drop_jobs(server: RedraftServer, jobs: tuple[Job, ...]) -> None:
    """Clear what jobs that had to make room still show."""
    for job in jobs:
        running = server.running.pop(job.id, None)
        if running is not None:
            running.sender.finish(())


def stop_document(server: RedraftServer, uri: str, message: str) -> None:
    """Stop all jobs of a document that is gone."""
    for job in server.session.jobs.in_document(uri):
        stop_job(server, job, JobState.CANCELLED, message)


def stop_broken(server: RedraftServer, jobs: tuple[Job, ...]) -> None:
    """Stop jobs whose own lines were changed."""
    for job in jobs:
        stop_job(server, job, JobState.STALE, STALE_MESSAGE)
