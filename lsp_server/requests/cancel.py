"""`redraft/cancel`: stop a job wherever it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsp_server.jobs import JobState
from lsp_server.params import read_job_id
from lsp_server.running import stop_job

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer


def cancel(server: RedraftServer, params: Any) -> dict[str, Any]:
    """Stop; false when there is no such job, or its edit is on its way already."""
    job = server.session.jobs.get(read_job_id(params) or "")
    stopped = job is not None and stop_job(server, job, JobState.CANCELLED)
    return {"cancelled": stopped}
