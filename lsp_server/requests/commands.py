"""Commands for clients that know nothing of redraft. Errors go to the user as messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lsp_server.core import RewriteError
from lsp_server.jobs import JobState
from lsp_server.params import read_job_id, read_rewrite
from lsp_server.protocol import CONTENT_MODIFIED
from lsp_server.runner import start_job
from lsp_server.running import stop_job

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

REWRITE = "redraft.rewrite"
CANCEL = "redraft.cancel"


def register(server: RedraftServer) -> None:
    """Offer both."""
    server.command(REWRITE)(lambda *arguments: rewrite(server, *arguments))
    server.command(CANCEL)(lambda *arguments: cancel(server, *arguments))


def rewrite(server: RedraftServer, *arguments: Any) -> dict[str, Any] | None:
    """Begin a rewrite that is applied when it is complete; answers at once.

    pygls does not pass a cancel on to a running command, so the work is a job of its
    own, and `redraft.cancel` or the progress display's button stops it.
    """
    params = read_rewrite(arguments[0] if arguments else None, server.session.settings)
    try:
        running = start_job(server, params._replace(apply=True), announce=True)
    except RewriteError as error:
        server.tell(types.MessageType.Error, error.message)
        return None
    except JsonRpcException as error:
        if error.code != CONTENT_MODIFIED:
            raise
        server.tell(types.MessageType.Warning, error.message)
        return None
    return {"jobId": running.job.id}


def cancel(server: RedraftServer, *arguments: Any) -> dict[str, Any]:
    """Cancel one job, or, without arguments, all that are at work."""
    if not arguments or arguments[0] is None:
        stopped = [
            stop_job(server, job, JobState.CANCELLED) for job in server.session.jobs if job.active
        ]
        return {"cancelled": any(stopped)}
    job = server.session.jobs.get(read_job_id(arguments[0]) or "")
    return {"cancelled": job is not None and stop_job(server, job, JobState.CANCELLED)}
