"""Orders of events that no client can bring about at will, inside one process."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from lsprotocol import types

from lsp_server import runner
from lsp_server.capabilities import ClientCapabilities, Settings
from lsp_server.core import RewriteResult, Status
from lsp_server.jobs import JobState
from lsp_server.params import read_rewrite
from lsp_server.requests.accept import accept
from lsp_server.requests.cancel import cancel
from lsp_server.requests.reject import reject
from lsp_server.running import stop_job
from lsp_server.server import RedraftServer
from lsp_server.text.document import Document
from lsp_server.text.hunks import final_hunks

TEXT = "def f():\n    return 1\n"
URI = "file:///a.py"


class Wire:
    """Keeps what the server sends."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def write(self, data: bytes) -> None:
        body = json.loads(data.split(b"\r\n\r\n", 1)[1])
        self.methods.append(body.get("method", ""))

    def close(self) -> None:
        pass


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def server(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> RedraftServer:
    """A server whose model answers at once."""

    async def rewrite(request, engine):
        hunks = final_hunks(request.text, request.span, "def f():\n    return 2")
        yield RewriteResult(Status.OK, "def f():\n    return 2", hunks)

    monkeypatch.setattr(runner, "rewrite", rewrite)
    server = RedraftServer()
    server.protocol.set_writer(wire)
    server.session.capabilities = replace(ClientCapabilities(), apply_edit=True)
    server.session.documents.open(Document(URI, "python", 1, TEXT))
    return server


PARAMS = {
    "textDocument": {"uri": URI},
    "position": {"line": 0, "character": 0},
    "instruction": "return 2",
}


async def test_a_cancel_between_the_answer_and_its_edit_sends_no_edit(server, wire) -> None:
    running = runner.start_job(server, read_rewrite({**PARAMS, "apply": True}, Settings()))
    stopped = []
    # Called right after the job has gone into review, before its edit is begun.
    running.task.add_done_callback(
        lambda _: stopped.append(stop_job(server, running.job, JobState.CANCELLED))
    )
    result = await running.outcome

    assert stopped == [True]
    assert (result["status"], result["applied"], result["hunks"]) == ("cancelled", False, [])
    assert "workspace/applyEdit" not in wire.methods
    assert server.running == {}
    assert len(server.session.jobs) == 0


@pytest.mark.parametrize("other", [reject, cancel])
async def test_an_accept_overtaken_before_its_edit_sends_no_edit(server, wire, other) -> None:
    running = runner.start_job(server, read_rewrite(PARAMS, Settings()))
    job_id = (await running.outcome)["jobId"]

    answer = accept(server, {"jobId": job_id})
    other(server, {"jobId": job_id})
    result = await answer
    assert (result["applied"], result["remaining"]) == (False, [])
    assert "ended already" in result["message"]
    assert "workspace/applyEdit" not in wire.methods


@pytest.mark.parametrize(("wanted", "folders"), [(None, ("/w",)), (False, ())])
def test_a_rewrite_names_the_open_folders_unless_the_user_does_not_want_it(
    server, wanted, folders
) -> None:
    server.begin(
        types.InitializeParams(
            capabilities=types.ClientCapabilities(),
            initialization_options={"workspace": wanted},
            workspace_folders=[types.WorkspaceFolder("file:///w", "w")],
        )
    )
    request, _ = runner.request_of(server.session, read_rewrite(PARAMS, server.session.settings))
    assert request.folders == folders
