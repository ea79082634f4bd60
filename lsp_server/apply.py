"""Applying: one versioned `workspace/applyEdit`, and a look whether it arrived.

`applied: true` proves little: Neovim says so for an edit that it dropped because the
buffer was newer, and VS Code's version check can race with typing. So the mirror is
compared with what was meant, and an edit that never arrived is sent again in the new
version as long as the span is untouched.

An edit is sent again only where the first one can no longer be applied: the editor said
that it did not apply it, or it checks versions and the version has changed. One that was
not answered, or claimed by an editor that checks no versions, may still come: the job ends.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from lsp_server.convert import text_edits
from lsp_server.core import Hunk
from lsp_server.jobs import STALE_MESSAGE, Job, JobState
from lsp_server.running import close_job, short
from lsp_server.text.document import Document
from lsp_server.text.hunks import apply_hunks, span_text_with

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 10.0
FOLLOW_SECONDS = 2.0
MAX_ATTEMPTS = 3

NOT_FOLLOWED = (
    "The editor said that the edit was applied, but the text does not show it; "
    "check the file, undo if it looks wrong, and ask again."
)
NO_ANSWER = (
    "The editor did not answer whether the edit was applied; "
    "check the file, and ask again if the edit is not there."
)
NO_APPLY = "This editor cannot apply edits that a server sends."


class Applied(NamedTuple):
    """Whether the edit is in the document, and if not, why.

    Attributes:
        answered: the editor said what it did; without that, it may still apply the edit.
        claimed: the editor said that it applied the edit.
    """

    applied: bool
    message: str = ""
    answered: bool = True
    claimed: bool = False


class Expectation:
    """What the mirror should hold after an edit; asked after every change."""

    def __init__(self, document: Document, expected: str, new_span: str) -> None:
        self._expected = expected
        # With typing in between the whole texts differ, but the new lines are there,
        # which proves something only where they were not there before.
        self._new_span = new_span if new_span and new_span not in document.text else None
        self.followed = asyncio.Event()

    def look(self, document: Document) -> None:
        """Compare with the mirror's text now."""
        if document.too_large or self.followed.is_set():
            return
        text = document.text
        if text == self._expected or (self._new_span is not None and self._new_span in text):
            self.followed.set()


async def apply_job(server: RedraftServer, job: Job, hunks: tuple[Hunk, ...]) -> Applied:
    """Apply some of a job's hunks; the job must be in review.

    The user is told where the edit did not arrive. The job's state is the caller's
    to change, except that a span that no longer holds its text makes it stale.
    """
    if job.applying:
        return Applied(False, "An edit of this rewrite is on its way already.")
    if not server.session.capabilities.apply_edit:
        return _tell(server, NO_APPLY)
    job.applying, job.touched = True, False
    try:
        outcome = await _attempts(server, job, hunks)
    finally:
        job.applying = False
        server.expectations.pop(job.id, None)
    if outcome.applied:
        return outcome
    if job.touched:
        close_job(server, job, JobState.STALE, STALE_MESSAGE)
    elif not _is_void(server, outcome):
        # It may still come, and the same hunks must not be put in twice.
        close_job(server, job, JobState.FAILED, outcome.message)
    return outcome


async def _attempts(server: RedraftServer, job: Job, hunks: tuple[Hunk, ...]) -> Applied:
    answer = Applied(False, STALE_MESSAGE)
    for _ in range(MAX_ATTEMPTS):
        document = server.session.documents.get(job.uri)
        if document is None:
            return _tell(server, "The document was closed before the edit could be applied.")
        if not _still_holds(document, job):
            job.touched = True
            return _tell(server, STALE_MESSAGE, types.MessageType.Warning)
        version = document.version
        answer = await _send(server, job, document, job.hunks_now(hunks))
        if answer.applied:
            return answer
        document = server.session.documents.get(job.uri)
        # Nothing new since the edit was made: sending it again would change nothing.
        if document is None or document.version == version or job.touched:
            break
        if not _is_void(server, answer):
            break
        logger.info("%s: the edit was overtaken by a change; once more", job.id)
    _tell(server, answer.message)
    return answer


def _is_void(server: RedraftServer, answer: Applied) -> bool:
    """Whether an edit that did not arrive can no longer do so once the document changes."""
    if not answer.answered:
        return False
    return not answer.claimed or server.session.capabilities.document_changes


def _still_holds(document: Document, job: Job) -> bool:
    if document.too_large:
        return False
    return document.text[job.span.start : job.span.end] == job.old_text


async def _send(
    server: RedraftServer, job: Job, document: Document, hunks: tuple[Hunk, ...]
) -> Applied:
    span = job.span
    new_span = span_text_with(document.text, span, hunks)
    expectation = Expectation(document, apply_hunks(document.text, hunks), new_span)
    server.expectations[job.id] = expectation
    try:
        response = await server.ask_client(
            types.WORKSPACE_APPLY_EDIT, _params(server, job, document, hunks), ANSWER_SECONDS
        )
    except asyncio.TimeoutError:
        if expectation.followed.is_set():
            return Applied(True)
        return Applied(False, NO_ANSWER, answered=False)
    except JsonRpcException as error:
        return Applied(False, f"The editor refused the edit: {error.message}")
    if not response.applied:
        why = response.failure_reason or "the text may have changed meanwhile"
        return Applied(False, f"The editor did not apply the edit: {why}.")
    try:
        await asyncio.wait_for(expectation.followed.wait(), FOLLOW_SECONDS)
    except asyncio.TimeoutError:
        return Applied(False, NOT_FOLLOWED, claimed=True)
    return Applied(True)


def _params(
    server: RedraftServer, job: Job, document: Document, hunks: tuple[Hunk, ...]
) -> types.ApplyWorkspaceEditParams:
    capabilities = server.session.capabilities
    edits = text_edits(document.lines, hunks, capabilities.encoding)
    if capabilities.document_changes:
        versioned = types.OptionalVersionedTextDocumentIdentifier(
            uri=job.uri, version=document.version
        )
        edit = types.WorkspaceEdit(
            document_changes=[types.TextDocumentEdit(text_document=versioned, edits=edits)]
        )
    else:
        edit = types.WorkspaceEdit(changes={job.uri: edits})
    return types.ApplyWorkspaceEditParams(
        edit=edit, label=f"redraft: {short(job.request.instruction)}"
    )


def _tell(
    server: RedraftServer,
    message: str,
    kind: types.MessageType = types.MessageType.Error,
) -> Applied:
    server.tell(kind, message)
    return Applied(False, message)
