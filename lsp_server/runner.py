"""Runs jobs: from a request to the streamed answer and the job's end.

A job is one asyncio task. Whoever wants it stopped says why (`stop_job`) and cancels
the task; cancelling closes the rewrite's event stream, which closes the connection to
the engine, which stops the model. `_settle` is the only place where a task's outcome
becomes the job's state.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams

from lsp_server.apply import apply_job
from lsp_server.convert import hunks_json, range_json
from lsp_server.core import (
    HunksUpdate,
    Progress,
    RewriteError,
    RewriteRequest,
    RewriteResult,
    Status,
)
from lsp_server.jobs import Job, JobState
from lsp_server.params import RewriteParams
from lsp_server.presets import PRESET_IDS, preset_instruction
from lsp_server.progress import ProgressReporter
from lsp_server.protocol import CONTENT_MODIFIED, INTERNAL_MESSAGE
from lsp_server.rewrite import rewrite
from lsp_server.running import Running, close_job, drop_jobs, short, stop_job
from lsp_server.session import Session, StaleVersionError, document_at, language_in, span_in
from lsp_server.streaming import HunkSender

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

logger = logging.getLogger(__name__)

_STATE_BY_PHASE = {"starting": JobState.QUEUED, "queued": JobState.QUEUED}
_STATE_BY_STATUS = {Status.CANCELLED: JobState.CANCELLED, Status.STALE: JobState.STALE}
_STATUS_BY_STATE = {JobState.CANCELLED: Status.CANCELLED, JobState.STALE: Status.STALE}


def request_of(session: Session, params: RewriteParams) -> tuple[RewriteRequest, int | None]:
    """Fix what is to be rewritten, as the text is now.

    Raises RewriteError, or JsonRpcException for parameters and versions.
    """
    try:
        document = document_at(session, params.place)
    except StaleVersionError:
        raise JsonRpcException(
            "The document has changed since; try again.", code=CONTENT_MODIFIED
        ) from None
    language = language_in(document)
    instruction = params.instruction
    if params.preset is not None:
        preset = preset_instruction(params.preset, language)
        if preset is None:
            raise JsonRpcInvalidParams(
                f"There is no preset {params.preset!r}; there are {', '.join(PRESET_IDS)}."
            )
        instruction = f"{preset} {instruction}".strip()
    if not instruction.strip():
        raise RewriteError("empty_instruction", "Say what should be changed.")
    span = span_in(session, document, params.place)
    request = RewriteRequest(
        text=document.text,
        span=span,
        language=language,
        instruction=instruction,
        options=params.options,
        folders=session.folders,
    )
    return request, document.version


def start_job(server: RedraftServer, params: RewriteParams, *, announce: bool = False) -> Running:
    """Begin a rewrite. Everything that can be refused is refused here, at once."""
    session = server.session
    request, version = request_of(session, params)
    span = request.span
    job = Job(
        id=params.job_id or session.jobs.new_id(),
        uri=params.place.uri,
        version=version,
        request=request,
        span=span,
        base=span.start,
        old_text=request.text[span.start : span.end],
        apply=params.apply,
    )
    session.jobs.add(job)
    loop = asyncio.get_running_loop()
    progress = ProgressReporter(server, f"redraft: {short(request.instruction)}", params.token)
    job.token = progress.token
    running = Running(
        job=job,
        sender=HunkSender(server, job),
        progress=progress,
        outcome=loop.create_future(),
        announce=announce,
        started=time.monotonic(),
    )
    server.running[job.id] = running
    running.outcome.add_done_callback(partial(_on_outcome, server, job))
    running.sender.update(progress=Progress("starting"))
    running.task = loop.create_task(_work(server, running))
    running.task.add_done_callback(partial(_settle, server, running))
    logger.info("%s: began, %s of %d characters", job.id, span.kind, span.end - span.start)
    return running


async def _work(server: RedraftServer, running: Running) -> RewriteResult:
    job = running.job
    result: RewriteResult | None = None
    async with aclosing(rewrite(job.request, server.session.engine)) as events:
        async for event in events:
            if isinstance(event, Progress):
                _on_progress(server, running, event)
            elif isinstance(event, HunksUpdate):
                _enter(server, job, JobState.WRITING)
                running.sender.update(hunks=event.hunks)
            else:
                result = event
    if result is None:
        raise RuntimeError("the rewrite ended without a result")
    return result


def _on_progress(server: RedraftServer, running: Running, progress: Progress) -> None:
    state = JobState.WRITING if progress.phase == "writing" else JobState.WARMING
    _enter(server, running.job, _STATE_BY_PHASE.get(progress.phase, state))
    running.progress.report(progress)
    running.sender.update(progress=progress)


def _enter(server: RedraftServer, job: Job, state: JobState) -> None:
    """Move forwards; a report of an earlier stage that comes late changes nothing."""
    order = (JobState.QUEUED, JobState.WARMING, JobState.WRITING)
    if order.index(state) > order.index(job.state):
        server.session.jobs.move(job, state)


def _on_outcome(server: RedraftServer, job: Job, outcome: asyncio.Future[Any]) -> None:
    # The client cancelled its request. Once the edit is on its way it is too late.
    if outcome.cancelled():
        stop_job(server, job, JobState.CANCELLED)


def _settle(server: RedraftServer, running: Running, task: asyncio.Task[RewriteResult]) -> None:
    job = running.job
    result = _result_of(job, task)
    job.result, job.stats, job.message = result, result.stats, result.message
    _pass_on_notice(server, result)
    if result.status is not Status.OK:
        state = _STATE_BY_STATUS.get(result.status, JobState.FAILED)
        server.session.jobs.move(job, state, result.message)
        if server.running.get(job.id) is running:
            del server.running[job.id]
        running.sender.finish(())
        finish_running(server, running)
        return
    job.hunks = result.hunks
    # In review for hours, perhaps: what is still needed of the text is in `old_text`.
    job.request = replace(job.request, text="")
    drop_jobs(server, server.session.jobs.move(job, JobState.REVIEW))
    running.sender.finish(job.hunks)
    if job.apply:
        server.spawn(_apply_and_finish(server, running))
    else:
        finish_running(server, running)


def _pass_on_notice(server: RedraftServer, result: RewriteResult) -> None:
    """Tell once, not at every rewrite, what is special about how the engine runs the model."""
    notice = result.stats.get("notice")
    if isinstance(notice, str) and notice and notice != server.session.told_notice:
        server.session.told_notice = notice
        server.tell(types.MessageType.Info, notice)


def _result_of(job: Job, task: asyncio.Task[RewriteResult]) -> RewriteResult:
    """What became of the work; a stop from outside outweighs whatever the task says."""
    failure = None if task.cancelled() else task.exception()
    if job.stop is not None:
        return RewriteResult(
            _STATUS_BY_STATE.get(job.stop.state, Status.FAILED), message=job.stop.message
        )
    if task.cancelled():
        return RewriteResult(Status.CANCELLED)
    if isinstance(failure, RewriteError):
        job.failure = failure
        return RewriteResult(Status.FAILED, message=failure.message)
    if failure is not None:
        logger.error("%s failed", job.id, exc_info=failure)
        job.failure = RewriteError("internal", INTERNAL_MESSAGE)
        return RewriteResult(Status.FAILED, message=INTERNAL_MESSAGE)
    return task.result()


async def _apply_and_finish(server: RedraftServer, running: Running) -> None:
    job = running.job
    if job.stop is not None and running.task is not None:
        # Cancelled in the moment before this began: nothing has been sent.
        job.result = _result_of(job, running.task)
        finish_running(server, running)
        return
    try:
        outcome = await apply_job(server, job, job.hunks)
        job.applied, job.message = outcome.applied, outcome.message
    except Exception:
        logger.exception("%s could not be applied", job.id)
        job.message = INTERNAL_MESSAGE
    finally:
        if server.session.jobs.get(job.id) is job:
            close_job(server, job, JobState.ACCEPTED if job.applied else JobState.FAILED)
    finish_running(server, running)


def finish_running(server: RedraftServer, running: Running) -> None:
    """Tell everyone who waits that the job's work is over."""
    job, result = running.job, running.job.result
    seconds = time.monotonic() - running.started
    status = result.status.value if result else "failed"
    logger.info("%s: %s after %.1f s", job.id, status, seconds)
    running.progress.end("done" if status == "ok" else status.replace("_", " "))
    if not running.outcome.done():
        if job.failure is not None and not running.announce:
            running.outcome.set_exception(job.failure)
        else:
            running.outcome.set_result(outcome_json(server, job))
    if running.announce and result is not None:
        _announce(server, result)


def _announce(server: RedraftServer, result: RewriteResult) -> None:
    # What an edit that could not be applied has to say was said where it was sent.
    if result.status in (Status.OK, Status.CANCELLED):
        return
    mild = result.status in (Status.UNCHANGED, Status.STALE)
    kind = types.MessageType.Warning if mild else types.MessageType.Error
    text = result.message or f"The rewrite ended: {result.status.value.replace('_', ' ')}."
    server.tell(kind, text)


def outcome_json(server: RedraftServer, job: Job) -> dict[str, Any]:
    """The result of `redraft/rewrite`. Ranges are in the document as it is now."""
    session, result = server.session, job.result or RewriteResult(Status.FAILED)
    document = session.documents.get(job.uri)
    encoding = session.capabilities.encoding
    shown = document is not None and not document.too_large and not job.applied
    hunks = job.hunks if result.status is Status.OK else ()
    return {
        "jobId": job.id,
        "status": result.status.value,
        "span": range_json(document.lines, job.span.start, job.span.end, encoding)
        if document is not None and not document.too_large
        else None,
        "text": result.text,
        "hunks": hunks_json(document.lines, job.hunks_now(hunks), encoding)
        if document is not None and shown
        else [],
        "message": job.message or result.message,
        "stats": dict(result.stats),
        "applied": job.applied,
    }
