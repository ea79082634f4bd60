"""`redraft/reject`: drop a job's hunks, or some of them. The buffer is not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsp_server.jobs import JobState
from lsp_server.params import read_hunk_ids
from lsp_server.requests.accept import job_in_review
from lsp_server.running import close_job

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer


def reject(server: RedraftServer, params: Any) -> dict[str, Any]:
    """Drop; ids that the job does not have are passed over."""
    job = job_in_review(server, params)
    dropped = read_hunk_ids(params)
    kept = () if dropped is None else tuple(h for h in job.hunks if h.id not in dropped)
    if not kept:
        close_job(server, job, JobState.REJECTED)
        return {"remaining": []}
    job.hunks = kept
    running = server.running.get(job.id)
    if running is not None:
        running.sender.finish(kept)
    return {"remaining": [hunk.id for hunk in kept]}
