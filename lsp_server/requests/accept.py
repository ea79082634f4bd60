"""`redraft/accept`: apply a job's hunks, or some of them, as one versioned edit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lsp_server.apply import apply_job
from lsp_server.core import RewriteError
from lsp_server.jobs import Job, JobState
from lsp_server.notifications import job_missing
from lsp_server.params import read_hunk_ids, read_job_id
from lsp_server.running import close_job
from lsp_server.text.hunks import span_text_with

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer


def accept(server: RedraftServer, params: Any) -> asyncio.Future[dict[str, Any]]:
    """Apply. Once begun it is finished, even when the client cancels the request."""
    job = job_in_review(server, params)
    wanted = read_hunk_ids(params)
    return asyncio.shield(server.spawn(_accept(server, job, wanted)))


def job_in_review(server: RedraftServer, params: Any) -> Job:
    """The job that the parameters name, complete and not on its way already.

    Raises RewriteError saying why not.
    """
    job_id = read_job_id(params) or ""
    job = server.session.jobs.get(job_id)
    if job is None:
        raise job_missing(server, job_id)
    if job.applying:
        raise RewriteError("busy", "An edit of this rewrite is on its way already.")
    if job.state is not JobState.REVIEW:
        raise RewriteError("not_ready", "This rewrite is still being written.")
    return job


async def _accept(server: RedraftServer, job: Job, wanted: frozenset[str] | None) -> dict[str, Any]:
    if server.session.jobs.get(job.id) is not job:
        # Rejected or cancelled in the same breath.
        return {"applied": False, "message": job_missing(server, job.id).message, "remaining": []}
    chosen = tuple(h for h in job.hunks if wanted is None or h.id in wanted)
    if not chosen:
        text = "None of these hunks belongs to this rewrite."
        return {"applied": False, "message": text, "remaining": [h.id for h in job.hunks]}
    document = server.session.documents.get(job.uri)
    before = document.text if document is not None else ""
    new_text = span_text_with(before, job.span, job.hunks_now(chosen)) if before else ""
    outcome = await apply_job(server, job, chosen)
    if server.session.jobs.get(job.id) is not job:
        remaining: tuple[str, ...] = ()
    elif outcome.applied:
        remaining = _after_applied(server, job, chosen, new_text)
    else:
        remaining = tuple(h.id for h in job.hunks)
    return {
        "applied": outcome.applied,
        "message": outcome.message,
        "remaining": list(remaining),
    }


def _after_applied(
    server: RedraftServer, job: Job, chosen: tuple[Any, ...], new_text: str
) -> tuple[str, ...]:
    """Close the job, or keep it in review with the hunks that were left."""
    done = {hunk.id for hunk in chosen}
    kept = tuple(hunk for hunk in job.hunks if hunk.id not in done)
    document = server.session.documents.get(job.uri)
    if not kept:
        close_job(server, job, JobState.ACCEPTED)
        return ()
    # The client's own changes of the span do not move it; find its start again.
    start = job.base if document is None else _find(document.text, new_text, job.span.start)
    if document is None or start < 0:
        close_job(server, job, JobState.ACCEPTED)
        return ()
    moved = []
    for hunk in kept:
        by = sum(len(c.new_text) - (c.end - c.start) for c in chosen if c.start < hunk.start)
        moved.append(hunk._replace(start=hunk.start + by, end=hunk.end + by))
    job.span = job.span._replace(start=start, end=start + len(new_text))
    job.old_text = new_text
    shift = start - job.base
    job.hunks = tuple(h._replace(start=h.start + shift, end=h.end + shift) for h in moved)
    job.base = start
    running = server.running.get(job.id)
    if running is not None:
        running.sender.finish(job.hunks)
    return tuple(hunk.id for hunk in job.hunks)


def _find(text: str, wanted: str, near: int) -> int:
    """Where `wanted` begins, -1 if nowhere.

    What was put in right before the span has pushed its start behind itself, so it is
    looked for that far back, but no further: an equal function may stand above.
    """
    if text.startswith(wanted, near):
        return near
    return text.find(wanted, max(0, near - len(wanted)))
