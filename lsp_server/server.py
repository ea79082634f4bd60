"""The language server: ties pygls to the session, the requests and the notifications."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable, Coroutine, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from lsp_server import notifications
from lsp_server.capabilities import read_settings, resolve_capabilities, workspace_folders
from lsp_server.jobs import JobState
from lsp_server.process_watch import can_be_seen, watch_process
from lsp_server.protocol import RedraftProtocol
from lsp_server.requests import code_action, commands
from lsp_server.requests.accept import accept
from lsp_server.requests.cancel import cancel
from lsp_server.requests.reject import reject
from lsp_server.requests.rewrite import rewrite
from lsp_server.requests.status import status
from lsp_server.requests.warm import warm
from lsp_server.running import stop_job
from lsp_server.session import Session
from lsp_server.transport import Writer

if TYPE_CHECKING:
    from lsp_server.apply import Expectation
    from lsp_server.running import Running

logger = logging.getLogger(__name__)

END_SECONDS = 1.0

REQUESTS: Mapping[str, Callable[[Any, Any], Any]] = {
    "redraft/rewrite": rewrite,
    "redraft/accept": accept,
    "redraft/reject": reject,
    "redraft/cancel": cancel,
    "redraft/warm": warm,
    "redraft/status": status,
}


def package_version() -> str:
    """The installed version of redraft."""
    try:
        return version("redraft")
    except PackageNotFoundError:
        return "0"


class RedraftServer(LanguageServer):
    """One client's server.

    Attributes:
        session: documents, jobs, engine, what the client can do.
        running: what is at work for each job that has not ended, by job id.
        expectations: what an edit on its way should do to the mirror, by job id.
        stopped: set to the process's exit code when it is time to end.
    """

    protocol: RedraftProtocol  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__(
            name="redraft",
            version=package_version(),
            protocol_cls=RedraftProtocol,
            converter_factory=default_converter,
        )
        self.session = Session()
        self.running: dict[str, Running] = {}
        self.expectations: dict[str, Expectation] = {}
        self.stopped: asyncio.Future[int] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        for method, handler in REQUESTS.items():
            self.protocol.requests[method] = _bound(handler, self)
        notifications.register(self)
        code_action.register(self)
        commands.register(self)

    def begin(self, params: types.InitializeParams) -> None:
        """Take over what the client said in `initialize`."""
        self.session.capabilities = resolve_capabilities(params)
        settings, warning = read_settings(params.initialization_options, os.environ)
        self.session.settings = settings
        self.session.folders = workspace_folders(params) if settings.workspace else ()
        if warning:
            self.tell(types.MessageType.Warning, warning)
        if params.process_id is not None and can_be_seen(params.process_id):
            self.spawn(watch_process(params.process_id, lambda: self.stop(1)))

    def stop(self, code: int) -> None:
        """Let the process end with this exit code; the first one counts."""
        if self.stopped is not None and not self.stopped.done():
            self.stopped.set_result(code)

    async def end_work(self) -> None:
        """Stop all jobs and close the connections to the engine, within a second."""
        tasks = [r.task for r in self.running.values() if r.task is not None]
        for job in self.session.jobs:
            stop_job(self, job, JobState.CANCELLED)
        if self.session.warming is not None:
            self.session.warming.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=END_SECONDS / 2)
        try:
            await asyncio.wait_for(self.session.close_engine(), END_SECONDS / 2)
        except Exception:
            logger.exception("the connection to the engine could not be closed")

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something in the background, and hold on to it while it runs."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("background work failed", exc_info=task.exception())

    async def ask_client(self, method: str, params: Any, seconds: float) -> Any:
        """Send a request to the client and wait for the answer for so many seconds.

        Raises asyncio.TimeoutError; an answer that comes later is passed over.
        """
        msg_id = f"redraft-{uuid.uuid4()}"
        answer = self.protocol.send_request_async(method, params, msg_id=msg_id)
        try:
            return await asyncio.wait_for(answer, seconds)
        finally:
            self.protocol.forget_request(msg_id)

    def tell(self, kind: types.MessageType, message: str) -> None:
        """Show the user one sentence."""
        self.window_show_message(types.ShowMessageParams(type=kind, message=message))

    @property
    def unsent_bytes(self) -> int:
        """How much the client has yet to read."""
        writer = self.protocol.writer
        return writer.unsent_bytes if isinstance(writer, Writer) else 0

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Keep faults in the log; a request's client gets its error as the answer."""
        logger.error("fault in %s", getattr(source, "__name__", "pygls"), exc_info=error)


def _bound(handler: Callable[[Any, Any], Any], server: RedraftServer) -> Callable[[Any], Any]:
    return lambda params: handler(server, params)
