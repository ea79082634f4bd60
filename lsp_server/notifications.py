"""Notifications from the client: documents opened, changed, saved and closed; cancel buttons."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from lsprotocol import types

from lsp_server.core import RewriteError
from lsp_server.jobs import JobState
from lsp_server.running import stop_broken, stop_document, stop_job
from lsp_server.text.document import Change, Document
from lsp_server.text.positions import LinePosition

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

logger = logging.getLogger(__name__)

CLOSED_MESSAGE = "The document was closed."


def register(server: RedraftServer) -> None:
    """Offer all of them."""
    server.feature(types.TEXT_DOCUMENT_DID_OPEN)(lambda params: did_open(server, params))
    server.feature(types.TEXT_DOCUMENT_DID_CHANGE)(lambda params: did_change(server, params))
    server.feature(types.TEXT_DOCUMENT_DID_CLOSE)(lambda params: did_close(server, params))
    # Accepted so that clients which send it anyway cause no warnings in the log.
    server.feature(types.TEXT_DOCUMENT_DID_SAVE)(lambda params: None)
    server.feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)(
        lambda params: progress_cancel(server, params)
    )


def did_open(server: RedraftServer, params: types.DidOpenTextDocumentParams) -> None:
    """Mirror a document. Opened again, it replaces the mirror and stops its jobs."""
    item = params.text_document
    stop_document(server, item.uri, CLOSED_MESSAGE)
    document = Document(item.uri, item.language_id, item.version, item.text)
    gone = server.session.documents.open(document)
    if gone is not None:
        stop_document(server, gone.uri, CLOSED_MESSAGE)


def did_change(server: RedraftServer, params: types.DidChangeTextDocumentParams) -> None:
    """Follow a change: the mirror first, then the spans of the document's jobs."""
    uri = params.text_document.uri
    document = server.session.documents.use(uri)
    if document is None:
        logger.warning("a change of a document that is not open")
        return
    encoding = server.session.capabilities.encoding
    changes = [_change(event) for event in params.content_changes]
    applied = document.apply(changes, params.text_document.version, encoding)
    for change in applied:
        stop_broken(server, server.session.jobs.follow_change(uri, change))
    for job in server.session.jobs.in_document(uri):
        expectation = server.expectations.get(job.id)
        if expectation is not None:
            expectation.look(document)


def _change(event: types.TextDocumentContentChangeEvent) -> Change:
    if isinstance(event, types.TextDocumentContentChangeWholeDocument):
        return Change(None, None, event.text)
    start, end = event.range.start, event.range.end
    return Change(
        LinePosition(start.line, start.character),
        LinePosition(end.line, end.character),
        event.text,
    )


def did_close(server: RedraftServer, params: types.DidCloseTextDocumentParams) -> None:
    """Forget a document and cancel its jobs."""
    stop_document(server, params.text_document.uri, CLOSED_MESSAGE)
    server.session.documents.close(params.text_document.uri)


def progress_cancel(server: RedraftServer, params: types.WorkDoneProgressCancelParams) -> None:
    """Cancel the job behind a progress display; an unknown token is no error."""
    job = server.session.jobs.with_token(params.token)
    if job is not None:
        stop_job(server, job, JobState.CANCELLED)


def job_missing(server: RedraftServer, job_id: str) -> RewriteError:
    """The error that says why there is no such job any more."""
    end = server.session.jobs.end_of(job_id)
    if end is None:
        return RewriteError("no_job", f"There is no rewrite named {job_id!r}.")
    text = end.message or f"This rewrite has ended already: {end.state.value}."
    return RewriteError(end.state.value, text)
