"""Editors that are slow, silent or wrong about an edit: it is never sent when it may be there.

`apply_job` is run with a client made of a few lines, since its answers have to come at
moments that no process beside us could be made to hit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from lsprotocol import types

from lsp_server import apply
from lsp_server.apply import NO_ANSWER, NOT_FOLLOWED, apply_job
from lsp_server.capabilities import ClientCapabilities
from lsp_server.core import Hunk, RewriteRequest, Span
from lsp_server.job_states import JobState
from lsp_server.jobs import Job
from lsp_server.server import RedraftServer
from lsp_server.session import Session
from lsp_server.text.document import Change, Document
from lsp_server.text.positions import LinePosition

TEXT = "a = 1\nb = 2\n"
HUNK = Hunk("h1", 6, 6, "", "new = 0\n")


class SlowClient:
    """What `apply_job` needs of a server, with a client behind it.

    Attributes:
        answers: what the client says to each edit; None is silence.
        behaves: what the client does when it gets an edit.
    """

    def __init__(self, *, versions: bool) -> None:
        self.session = Session()
        self.session.capabilities = ClientCapabilities(apply_edit=True, document_changes=versions)
        self.session.documents.open(Document("file:///a.py", "python", 1, TEXT))
        self.expectations: dict[str, apply.Expectation] = {}
        self.running: dict[str, Any] = {}
        self.messages: list[str] = []
        self.sent: list[Any] = []
        self.answers: list[bool | None] = []
        self.behaves: Callable[[], None] = lambda: None
        span = Span(6, 11)
        request = RewriteRequest(TEXT, span, "python", "do")
        self.job = Job("j", "file:///a.py", 1, request, span, 6, "b = 2", hunks=(HUNK,))
        self.session.jobs.add(self.job)
        self.session.jobs.move(self.job, JobState.REVIEW)

    @property
    def document(self) -> Document:
        document = self.session.documents.get("file:///a.py")
        assert document is not None
        return document

    async def ask_client(self, _method: str, params: Any, seconds: float) -> Any:
        self.sent.append(params)
        self.behaves()
        answer = self.answers.pop(0)
        if answer is None:
            raise asyncio.TimeoutError
        return SimpleNamespace(applied=answer, failure_reason=None)

    def tell(self, _kind: types.MessageType, message: str) -> None:
        self.messages.append(message)

    def change(self, line: int, text: str) -> None:
        """What `did_change` does with text put in at the start of a line."""
        place = LinePosition(line, 0)
        document = self.document
        for change in document.apply([Change(place, place, text)], document.version + 1, "utf-16"):
            self.session.jobs.follow_change(document.uri, change)
        for expectation in self.expectations.values():
            expectation.look(document)

    async def accept(self) -> apply.Applied:
        return await apply_job(cast("RedraftServer", self), self.job, self.job.hunks)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply, "FOLLOW_SECONDS", 0.01)


@pytest.mark.parametrize("versions", [False, True])
async def test_an_unanswered_edit_is_not_sent_again_though_the_user_types(versions: bool) -> None:
    client = SlowClient(versions=versions)
    client.answers = [None, True]
    client.behaves = lambda: client.change(0, "# typed\n")
    outcome = await client.accept()
    assert (outcome.applied, outcome.message) == (False, NO_ANSWER)
    assert len(client.sent) == 1
    assert client.messages == [NO_ANSWER]
    assert client.job.state is JobState.FAILED


async def test_an_edit_that_came_without_an_answer_counts_as_applied() -> None:
    client = SlowClient(versions=False)
    client.answers = [None]
    client.behaves = lambda: client.change(1, HUNK.new_text)
    outcome = await client.accept()
    assert outcome == apply.Applied(True)
    assert client.messages == []
    assert client.document.text == "a = 1\nnew = 0\nb = 2\n"


async def test_a_client_without_versions_that_claims_an_edit_is_not_sent_it_twice() -> None:
    client = SlowClient(versions=False)
    client.answers = [True, True]
    client.behaves = lambda: client.change(0, "# typed\n")
    outcome = await client.accept()
    assert (outcome.applied, outcome.message) == (False, NOT_FOLLOWED)
    assert len(client.sent) == 1
    assert client.job.state is JobState.FAILED


async def test_a_client_with_versions_that_claims_an_overtaken_edit_gets_it_again() -> None:
    client = SlowClient(versions=True)
    client.answers = [True, True]
    steps = iter([lambda: client.change(0, "# typed\n"), lambda: client.change(2, HUNK.new_text)])
    client.behaves = lambda: next(steps)()
    assert (await client.accept()).applied
    versions = [sent.edit.document_changes[0].text_document.version for sent in client.sent]
    assert versions == [1, 2]
    assert client.document.text == "# typed\na = 1\nnew = 0\nb = 2\n"


@pytest.mark.parametrize("versions", [False, True])
async def test_an_edit_that_was_said_not_to_be_applied_is_sent_again(versions: bool) -> None:
    client = SlowClient(versions=versions)
    client.answers = [False, True]
    steps = iter([lambda: client.change(0, "# typed\n"), lambda: client.change(2, HUNK.new_text)])
    client.behaves = lambda: next(steps)()
    assert (await client.accept()).applied
    assert len(client.sent) == 2
    assert client.document.text == "# typed\na = 1\nnew = 0\nb = 2\n"
