"""The smallest editor there is: one document, and a language server over stdio."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from lsp_server.core import Hunk, HunksUpdate, Progress, Span
from lsp_server.text.document import Change, Document
from lsp_server.text.positions import LineIndex, LinePosition
from redraft import __version__

_ENCODING = "utf-16"  # what a server must offer, so no negotiation is needed
_MAX_STDERR_LINES = 20

OnEvent = Callable[[Progress | HunksUpdate], None]


class ServerGone(Exception):
    """The language server ended while something was still asked of it."""


class HeadlessEditor:
    """An editor without a screen. Use it as an async context manager."""

    def __init__(self, on_event: OnEvent, options: dict[str, Any]) -> None:
        """Prepare; nothing runs yet.

        Args:
            on_event: told about progress and the growing diff of the running rewrite.
            options: the server's `initializationOptions`.
        """
        self._on_event = on_event
        self._options = options
        self._client = LanguageClient("redraft-demo", __version__)
        # pygls marks its handlers, which a bound method does not allow.
        self._client.feature(types.WORKSPACE_APPLY_EDIT)(lambda params: self._apply_edit(params))
        self._client.feature("redraft/hunks")(lambda params: self._hunks(params))
        self._errors: deque[str] = deque(maxlen=_MAX_STDERR_LINES)
        self._gone = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.document = Document("", "", 0, "")

    async def __aenter__(self) -> HeadlessEditor:
        """Start `redraft-lsp` and greet it."""
        script = Path(sys.executable).with_name("redraft-lsp")
        command = [str(script)] if script.exists() else [sys.executable, "-m", "lsp_server.main"]
        await self._client.start_io(*command)
        server = self._client._server
        assert server is not None
        self._tasks = [
            asyncio.create_task(self._keep_errors(server)),
            asyncio.create_task(self._watch(server)),
        ]
        capabilities = types.ClientCapabilities(
            workspace=types.WorkspaceClientCapabilities(
                apply_edit=True,
                workspace_edit=types.WorkspaceEditClientCapabilities(document_changes=True),
            ),
            experimental={"redraft": {"hunks": True}},
        )
        await self._answer(
            self._client.initialize_async(
                types.InitializeParams(
                    capabilities=capabilities,
                    process_id=os.getpid(),
                    initialization_options=self._options,
                )
            )
        )
        self._client.initialized(types.InitializedParams())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Say goodbye; a server that is gone already needs none."""
        if not self._gone.is_set():
            await self._answer(self._client.shutdown_async(None))
            self._client.exit(None)
            await self._gone.wait()
        for task in self._tasks:
            task.cancel()
        await self._client.stop()

    def open(self, path: Path, language: str, text: str) -> None:
        """Show a file; only its text is used, the file itself stays as it is."""
        version = self.document.version + 1
        self.document = Document(path.resolve().as_uri(), language, version, text)
        self._client.text_document_did_open(
            types.DidOpenTextDocumentParams(
                types.TextDocumentItem(self.document.uri, language, version, text)
            )
        )

    def close(self) -> None:
        """Close the document without saving."""
        self._client.text_document_did_close(
            types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(self.document.uri))
        )

    async def rewrite(self, span: Span, instruction: str, draft: bool) -> Any:
        """Send `redraft/rewrite` for a range and return its result (docs/lsp-extensions.md)."""
        lines = self.document.lines
        return await self._request(
            "redraft/rewrite",
            {
                "textDocument": {"uri": self.document.uri, "version": self.document.version},
                "range": {
                    "start": lines.position(span.start, _ENCODING)._asdict(),
                    "end": lines.position(span.end, _ENCODING)._asdict(),
                },
                "instruction": instruction,
                "draft": draft,
            },
        )

    async def accept(self, job_id: str) -> Any:
        """Accept all hunks; the server answers after its edit was applied here."""
        return await self._request("redraft/accept", {"jobId": job_id})

    async def reject(self, job_id: str) -> Any:
        """Drop all hunks."""
        return await self._request("redraft/reject", {"jobId": job_id})

    def hunks_of(self, answer: Any) -> tuple[Hunk, ...]:
        """The hunks of a result or a notification, in character offsets."""
        return tuple(_hunk(self.document.lines, hunk) for hunk in answer.hunks)

    @property
    def last_errors(self) -> str:
        """The last lines that the server wrote to stderr."""
        return "\n".join(self._errors)

    async def _request(self, method: str, params: dict[str, Any]) -> Any:
        return await self._answer(self._client.protocol.send_request_async(method, params))

    async def _answer(self, request: Awaitable[Any]) -> Any:
        """Wait for an answer, or for the news that none will come."""
        answer = asyncio.ensure_future(request)
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait((answer, gone), return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise ServerGone("redraft-lsp ended unexpectedly; its last words are above.")
        finally:
            answer.cancel()
            gone.cancel()

    async def _keep_errors(self, server: asyncio.subprocess.Process) -> None:
        assert server.stderr is not None
        async for line in server.stderr:
            self._errors.append(line.decode("utf-8", "replace").rstrip())

    async def _watch(self, server: asyncio.subprocess.Process) -> None:
        await server.wait()
        self._gone.set()

    def _apply_edit(self, params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        """Apply an edit to the document, if it is for the version that is open."""
        for change in params.edit.document_changes or ():
            if not isinstance(change, types.TextDocumentEdit) or (
                change.text_document.uri,
                change.text_document.version,
            ) != (self.document.uri, self.document.version):
                return types.ApplyWorkspaceEditResult(False, failure_reason="another version")
            edits = [_change(edit) for edit in change.edits]
            self._change_document(edits)
        return types.ApplyWorkspaceEditResult(True)

    def _change_document(self, edits: list[Change]) -> None:
        # Edits of one list all speak of the text before it, so the last goes first.
        edits.sort(key=lambda edit: edit.start or (0, 0), reverse=True)
        version = self.document.version + 1
        self.document.apply(edits, version, _ENCODING)
        changes = [
            types.TextDocumentContentChangePartial(_range(edit), edit.text) for edit in edits
        ]
        self._client.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(version, self.document.uri), changes
            )
        )

    def _hunks(self, params: Any) -> None:
        if getattr(params, "progress", None) is not None:
            progress = params.progress
            self._on_event(Progress(progress.phase, progress.fraction, progress.detail or ""))
        hunks = self.hunks_of(params)
        if hunks:
            self._on_event(HunksUpdate(hunks, hunks[-1].end, ""))


def _hunk(lines: LineIndex, hunk: Any) -> Hunk:
    start, end = (
        lines.offset(LinePosition(place.line, place.character), _ENCODING)
        for place in (hunk.range.start, hunk.range.end)
    )
    return Hunk(hunk.id, start, end, hunk.oldText, hunk.newText)


def _change(edit: Any) -> Change:
    start, end = edit.range.start, edit.range.end
    return Change(
        LinePosition(start.line, start.character),
        LinePosition(end.line, end.character),
        edit.new_text,
    )


def _range(edit: Change) -> types.Range:
    assert edit.start is not None
    assert edit.end is not None
    return types.Range(types.Position(*edit.start), types.Position(*edit.end))
