"""The fake editor: one window of a real editor, with a person's actions as methods."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient as PyglsClient
from pygls.protocol import JsonRPCNotification, JsonRPCResponseMessage, default_converter
from pytest_lsp import LanguageClient
from pytest_lsp.client import register_lsp_features

from tests.editor.clients import Client
from tests.editor.scripted_engine import ScriptedEngine
from tests.editor.text_model import Place, TextModel, from_units, to_units

WAIT_SECONDS = 10.0
SERVER = str(Path(sys.executable).with_name("redraft-lsp"))


def _raw_converter() -> Any:
    """pygls' converter, but redraft's own messages stay plain JSON."""
    converter = default_converter()
    converter.register_structure_hook(JsonRPCNotification, lambda o, c: c(**o))
    converter.register_structure_hook(JsonRPCResponseMessage, lambda o, c: c(**o))
    return converter


class Buffer:
    """An open document: its text, its version, its undo stack."""

    def __init__(self, uri: str, language: str, model: TextModel) -> None:
        self.uri = uri
        self.language = language
        self.model = model
        self.version = 1
        self.undo_stack: list[list[int]] = []


class Editor:
    """Use `Editor.started`. All places are (line, character) in the client's encoding."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.lsp = LanguageClient(converter_factory=_raw_converter)
        self.buffers: dict[str, Buffer] = {}
        self.current = ""
        self.updates: list[dict[str, Any]] = []
        self.edits: list[types.ApplyWorkspaceEditParams] = []
        self.problems: list[str] = []
        self.stderr: list[str] = []
        self.before_edit: Callable[[], None] | None = None
        self.refuse_edits_with: str | None = None
        self.ignore_edits = False
        self._expected: list[str] = []
        self._pending: set[asyncio.Task[Any]] = set()
        self._moved = asyncio.Event()
        self._stderr_task: asyncio.Task[None] | None = None

    # --- life

    @classmethod
    @asynccontextmanager
    async def started(
        cls,
        client: Client,
        engine: ScriptedEngine | None = None,
        *,
        options: dict[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Editor]:
        editor = cls(client)
        await editor.start(engine, environment)
        await editor.initialize(options)
        try:
            yield editor
            await editor.check()
            await editor.shut_down()
        finally:
            await editor.stop()

    async def start(
        self, engine: ScriptedEngine | None = None, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start the server process, without a word to it; `environment` is added to ours."""
        register_lsp_features(self.lsp)
        self._register()
        kept = {k: v for k, v in os.environ.items() if not k.startswith("REDRAFT_")}
        added = {"REDRAFT_LOG": "info", **(environment or {})}
        if engine is not None:
            added["REDRAFT_ENGINE_URL"] = engine.url
        await PyglsClient.start_io(self.lsp, SERVER, "--stdio", env={**kept, **added})
        self._stderr_task = asyncio.create_task(self._read_stderr())

    async def initialize(self, options: dict[str, Any] | None = None) -> types.InitializeResult:
        capabilities = self.lsp.protocol._converter.structure(
            self.client.capabilities, types.ClientCapabilities
        )
        result = await self.lsp.initialize_session(
            types.InitializeParams(
                capabilities=capabilities,
                client_info=types.ClientInfo(name=self.client.name, version=self.client.version),
                process_id=os.getpid(),
                initialization_options=options,
            )
        )
        chosen = result.capabilities.position_encoding
        assert getattr(chosen, "value", chosen) == self.client.encoding
        return result

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self.lsp._server is not None
        return self.lsp._server

    async def check(self) -> None:
        """What must hold when a person is done."""
        await self.wait_for_jobs(0)
        # After a round trip, so that answers that have come are off the list.
        assert not self._pending, "a request was never answered"
        assert self.problems == []
        assert self.unexpected() == []

    async def shut_down(self) -> None:
        """The orderly end."""
        await asyncio.wait_for(self.lsp.shutdown_session(), WAIT_SECONDS)
        assert self.process.returncode == 0

    async def reset(self) -> None:
        """Check, then forget everything: the next test finds the window as if new."""
        try:
            await self.check()
        finally:
            for uri in self.buffers:
                self.close(uri)
            await self.jobs()
            for held in (self.buffers, self.updates, self.edits, self.problems, self._expected):
                held.clear()
            for kept in (self.lsp.messages, self.lsp.log_messages, self.lsp.progress_reports):
                kept.clear()
            self.current, self.before_edit, self.refuse_edits_with = "", None, None
            self.ignore_edits = False

    async def stop(self) -> None:
        """End the server whatever state it is in."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
        if self._stderr_task is not None:
            await self._stderr_task
        await self.lsp.stop()

    async def jobs(self) -> list[dict[str, Any]]:
        """The jobs that the server holds, after it has handled all that was sent so far."""
        return (await self.request("redraft/status", {}))["jobs"]

    async def wait_for_jobs(self, count: int) -> None:
        """Wait until the server holds so many jobs: a stopped one goes a moment later."""
        for _ in range(50):
            jobs = await self.jobs()
            if len(jobs) == count:
                return
        raise AssertionError(f"expected {count} jobs, found {jobs}")

    def expect(self, part: str) -> None:
        """Name an error or warning that the user is to see in this session."""
        self._expected.append(part)

    def unexpected(self) -> list[str]:
        told = [m for m in self.lsp.messages if m.type.value <= 2]
        logged = [m for m in self.lsp.log_messages if m.type.value <= 2]
        texts = [m.message for m in [*told, *logged]]
        return [t for t in texts if not any(part in t for part in self._expected)]

    def told(self) -> list[str]:
        return [m.message for m in self.lsp.messages]

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.stderr.append(line.decode("utf-8", "replace"))
            sys.stderr.write(self.stderr[-1])

    # --- what the server sends

    def _register(self) -> None:
        feature = self.lsp.protocol.fm.features

        @self.lsp.feature("redraft/hunks")
        def hunks(params: dict[str, Any]) -> None:
            self.updates.append(params)
            self._check_hunks(params)
            self._moved.set()

        @self.lsp.feature(types.WORKSPACE_APPLY_EDIT)
        def apply_edit(params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
            return self._apply_edit(params)

        for method in (types.WINDOW_SHOW_MESSAGE, types.PROGRESS):
            handler = feature[method]

            def noticing(params: Any, handler: Any = handler) -> None:
                handler(params)
                self._moved.set()

            feature[method] = noticing

    def _check_hunks(self, update: dict[str, Any]) -> None:
        """Hunks must fit the version that they name: places that exist, and their old text."""
        buffer = self.buffers.get(update["uri"])
        if buffer is None or update["version"] != buffer.version or update["span"] is None:
            return
        model, last = buffer.model, 0
        try:
            limits = [model.index(_tuple(update["span"][side])) for side in ("start", "end")]
            for hunk in update["hunks"]:
                start, end = (model.index(_tuple(hunk["range"][s])) for s in ("start", "end"))
                assert max(last, limits[0]) <= start <= end <= limits[1], "out of place"
                old = from_units(model.units[start:end], model.encoding)
                assert old == hunk["oldText"], f"{old!r} is not {hunk['oldText']!r}"
                self._check_parts(hunk)
                last = end
        except AssertionError as error:
            self.problems.append(f"hunks: {error!r}")

    def _check_parts(self, hunk: dict[str, Any]) -> None:
        """Putting the parts into the old text must give the new one, unit by unit."""
        old, new = (to_units(hunk[side], self.client.encoding) for side in ("oldText", "newText"))
        made, at = [], 0
        for part in hunk["parts"]:
            made += old[at : part["old"][0]] + new[slice(*part["new"])]
            at = part["old"][1]
        assert made + old[at:] == new, f"parts of {hunk['id']} do not give its new text"

    def _apply_edit(self, params: types.ApplyWorkspaceEditParams) -> types.ApplyWorkspaceEditResult:
        self.edits.append(params)
        self._moved.set()
        if self.before_edit is not None:
            act, self.before_edit = self.before_edit, None
            act()
        if self.refuse_edits_with is not None:
            return types.ApplyWorkspaceEditResult(
                applied=False, failure_reason=self.refuse_edits_with
            )
        if self.ignore_edits:
            return types.ApplyWorkspaceEditResult(applied=True)
        try:
            return self._apply(params.edit)
        except AssertionError as error:
            self.problems.append(f"applyEdit: {error!r}")
            return types.ApplyWorkspaceEditResult(applied=False, failure_reason=str(error))

    def _apply(self, edit: types.WorkspaceEdit) -> types.ApplyWorkspaceEditResult:
        if edit.document_changes:
            (change,) = edit.document_changes
            assert isinstance(change, types.TextDocumentEdit)
            uri, version, edits = (
                change.text_document.uri,
                change.text_document.version,
                change.edits,
            )
        else:
            assert edit.changes is not None
            ((uri, edits),) = edit.changes.items()
            version = None
        buffer = self.buffers[uri]
        if version is not None:
            assert version <= buffer.version, "an edit for a version that does not exist yet"
            if version != buffer.version and self.client.version_check == "equality":
                return types.ApplyWorkspaceEditResult(applied=False)
            if version < buffer.version and self.client.version_check == "older_is_dropped":
                return types.ApplyWorkspaceEditResult(applied=True)
        before = list(buffer.model.units)
        found = [(_place(e.range.start), _place(e.range.end), e.new_text) for e in edits]  # type: ignore[union-attr]
        old = [(a, b) for a, b, _ in found]
        buffer.model.replace_all(found)
        buffer.undo_stack.append(before)
        # Last place first: then each change's range still is what it was in the old text.
        order = sorted(range(len(found)), key=lambda i: old[i], reverse=True)
        changes = [(old[i][0], old[i][1], found[i][2]) for i in order]
        if self.client.change_after_answer:
            asyncio.get_running_loop().call_soon(self._send_changes, buffer, changes)
        else:
            self._send_changes(buffer, changes)
        return types.ApplyWorkspaceEditResult(applied=True)

    def _send_changes(self, buffer: Buffer, changes: list[tuple[Place, Place, str]]) -> None:
        buffer.version += 1
        self.lsp.text_document_did_change(
            types.DidChangeTextDocumentParams(
                text_document=types.VersionedTextDocumentIdentifier(
                    uri=buffer.uri, version=buffer.version
                ),
                content_changes=[
                    types.TextDocumentContentChangePartial(
                        range=types.Range(start=_position(a), end=_position(b)), text=text
                    )
                    for a, b, text in changes
                ],
            )
        )

    # --- what a person does

    @property
    def buffer(self) -> Buffer:
        return self.buffers[self.current]

    @property
    def text(self) -> str:
        return self.buffer.model.text

    def open(self, name: str, text: str, language: str = "python") -> Buffer:
        uri = f"file:///project/{name}"
        buffer = Buffer(uri, language, TextModel(text, self.client.encoding))
        self.buffers[uri], self.current = buffer, uri
        self.lsp.text_document_did_open(
            types.DidOpenTextDocumentParams(
                text_document=types.TextDocumentItem(
                    uri=uri, language_id=language, version=1, text=text
                )
            )
        )
        return buffer

    def close(self, uri: str | None = None) -> None:
        self.lsp.text_document_did_close(
            types.DidCloseTextDocumentParams(
                text_document=types.TextDocumentIdentifier(uri=uri or self.current)
            )
        )

    def type(self, text: str, at: Place, until: Place | None = None) -> None:
        """Type at a place, over what is there up to `until`; one undo step."""
        buffer, end = self.buffer, until or at
        buffer.undo_stack.append(list(buffer.model.units))
        buffer.model.replace(at, end, text)
        self._send_changes(buffer, [(at, end, text)])

    def undo(self) -> None:
        """One step back, sent as editors do: a range replaced by the old text."""
        buffer = self.buffer
        end = buffer.model.end()
        buffer.model.units = buffer.undo_stack.pop()
        self._send_changes(buffer, [((0, 0), end, buffer.model.text)])

    def replace_document(self, text: str) -> None:
        """What a formatter does on saving: the whole text anew, as one undo step."""
        buffer = self.buffer
        buffer.undo_stack.append(list(buffer.model.units))
        buffer.model.units = to_units(text, self.client.encoding)
        buffer.version += 1
        self.lsp.text_document_did_change(
            types.DidChangeTextDocumentParams(
                text_document=types.VersionedTextDocumentIdentifier(
                    uri=buffer.uri, version=buffer.version
                ),
                content_changes=[types.TextDocumentContentChangeWholeDocument(text=text)],
            )
        )

    def find(self, text: str) -> Place:
        return self.buffer.model.find(text)

    def where(self, at: Place | None = None, until: Place | None = None) -> dict[str, Any]:
        """`textDocument` and `position`, or `range` with `until`."""
        place: dict[str, Any] = {
            "textDocument": {"uri": self.current, "version": self.buffer.version}
        }
        start = _json(at or (0, 0))
        if until is None:
            return {**place, "position": start}
        return {**place, "range": {"start": start, "end": _json(until)}}

    def ask(self, method: str, params: Any) -> tuple[str, asyncio.Task[Any]]:
        """Send a request and go on; returns its id and the task that has the answer."""
        msg_id = f"ask-{len(self._pending)}-{os.urandom(4).hex()}"
        answer = self.lsp.protocol.send_request(method, params, msg_id=msg_id)
        # Without a type for the result, it stays the JSON that the server sent.
        self.lsp.protocol._result_types.pop(msg_id)
        task = asyncio.ensure_future(asyncio.wrap_future(answer))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return msg_id, task

    def send_bytes(self, data: bytes) -> None:
        """Send something that need not be a message at all."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.send_bytes(b"Content-Length: %d\r\n\r\n" % len(body) + body)

    async def send_raw(self, message: dict[str, Any]) -> JsonRpcException | None:
        """Send a request that no client would make, and return the error that it gets."""
        msg_id = f"raw-{os.urandom(4).hex()}"
        answer: Future[Any] = Future()
        self.lsp.protocol._request_futures[msg_id] = answer
        self._send({"id": msg_id, **message})
        try:
            await asyncio.wait_for(asyncio.wrap_future(answer), WAIT_SECONDS)
        except JsonRpcException as error:
            return error
        return None

    def send_raw_notification(self, method: str, params: Any) -> None:
        """Send a notification that no client would make."""
        self._send({"method": method, "params": params})

    async def request(self, method: str, params: Any) -> Any:
        _, task = self.ask(method, params)
        return await asyncio.wait_for(task, WAIT_SECONDS)

    async def rewrite(
        self, instruction: str, at: Place | None = None, until: Place | None = None, **more: Any
    ) -> dict[str, Any]:
        params = {**self.where(at, until), "instruction": instruction, **more}
        return await self.request("redraft/rewrite", params)

    def begin_rewrite(
        self, instruction: str, at: Place | None = None, until: Place | None = None, **more: Any
    ) -> tuple[str, asyncio.Task[Any]]:
        params = {**self.where(at, until), "instruction": instruction, **more}
        return self.ask("redraft/rewrite", params)

    def cancel_request(self, msg_id: str) -> None:
        self.lsp.cancel_request(types.CancelParams(id=msg_id))

    async def accept(self, job_id: str, hunks: list[str] | None = None) -> dict[str, Any]:
        more = {} if hunks is None else {"hunks": hunks}
        return await self.request("redraft/accept", {"jobId": job_id, **more})

    async def reject(self, job_id: str, hunks: list[str] | None = None) -> dict[str, Any]:
        more = {} if hunks is None else {"hunks": hunks}
        return await self.request("redraft/reject", {"jobId": job_id, **more})

    async def code_actions(
        self,
        at: Place,
        until: Place | None = None,
        *,
        diagnostics: list[types.Diagnostic] | None = None,
        only: list[str] | None = None,
        automatic: bool = False,
    ) -> list[Any]:
        kind = types.CodeActionTriggerKind
        params = types.CodeActionParams(
            text_document=types.TextDocumentIdentifier(uri=self.current),
            range=types.Range(start=_position(at), end=_position(until or at)),
            context=types.CodeActionContext(
                diagnostics=diagnostics or [],
                only=only,  # type: ignore[arg-type]
                trigger_kind=kind.Automatic if automatic else kind.Invoked,
            ),
        )
        found = await self.request(types.TEXT_DOCUMENT_CODE_ACTION, params) or []
        structure = self.lsp.protocol._converter.structure
        # Taken apart here: lsprotocol reads an action that has a command as a Command.
        kinds = [
            types.Command if isinstance(a["command"], str) else types.CodeAction for a in found
        ]
        return [structure(a, kind) for a, kind in zip(found, kinds, strict=True)]

    async def run_code_action(self, action: Any) -> Any:
        command = action if isinstance(action, types.Command) else action.command
        assert command is not None
        return await self.command(command.command, *(command.arguments or ()))

    async def command(self, name: str, *arguments: Any) -> Any:
        return await self.request(
            types.WORKSPACE_EXECUTE_COMMAND,
            types.ExecuteCommandParams(command=name, arguments=list(arguments)),
        )

    def cancel_progress(self, token: Any) -> None:
        self.lsp.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(token=token))

    def progress(self) -> list[Any]:
        """All progress values so far, of all tokens."""
        return [value for values in self.lsp.progress_reports.values() for value in values]

    async def wait_for(self, holds: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
        """Wait until something that the server sends makes this true; return its value."""

        async def wait() -> Any:
            while not (value := holds()):
                self._moved.clear()
                await self._moved.wait()
            return value

        return await asyncio.wait_for(wait(), seconds)

    async def wait_for_text(self, text: str) -> None:
        await self.wait_for(lambda: self.edits)
        assert self.text == text


def _place(position: types.Position) -> Place:
    return position.line, position.character


def _tuple(position: dict[str, int]) -> Place:
    return position["line"], position["character"]


def _position(place: Place) -> types.Position:
    return types.Position(line=place[0], character=place[1])


def _json(place: Place) -> dict[str, int]:
    return {"line": place[0], "character": place[1]}
