"""Progress for people: what a job is doing, in words, in the client's progress area."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from lsp_server.core import Progress

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

REPORT_INTERVAL_SECONDS = 0.1
CREATE_SECONDS = 2.0

_WORDS: Mapping[str, str] = {
    "starting": "starting the engine",
    "queued": "waiting for the engine",
    "fetching": "fetching",
    "converting": "converting the model",
    "loading": "loading the model",
    "prefill": "reading",
    "writing": "writing",
}


def describe(progress: Progress) -> str:
    """A few words: "fetching 412 of 1117 MB", "reading 45%", "writing, 23 tokens/s"."""
    words = _WORDS.get(progress.phase, progress.phase)
    if progress.phase == "fetching" and progress.detail:
        return f"{words} {progress.detail}"
    if progress.fraction is not None and progress.phase != "writing":
        words = f"{words} {round(100 * min(max(progress.fraction, 0.0), 1.0))}%"
    return f"{words}, {progress.detail}" if progress.detail else words


def progress_json(progress: Progress) -> dict[str, Any]:
    """Progress as `redraft/hunks` carries it."""
    return {"phase": progress.phase, "fraction": progress.fraction, "detail": progress.detail}


class ProgressReporter:
    """One job's work-done progress: begin, at most ten reports a second, end.

    With a token from the client it begins at once; else the client is asked for one
    first, and a client that cannot show progress gets none.
    """

    def __init__(self, server: RedraftServer, title: str, token: str | int | None) -> None:
        self._server = server
        self._title = title
        self._latest = "starting"
        self._sent_at = 0.0
        self._phase = ""
        self._begun = False
        self._ended = False
        self._creating: asyncio.Task[None] | None = None
        self.token = token
        if token is not None:
            self._begin()
        elif server.session.capabilities.progress:
            self.token = f"redraft-{uuid.uuid4()}"
            self._creating = asyncio.get_running_loop().create_task(self._create())

    async def _create(self) -> None:
        with contextlib.suppress(Exception):
            await self._server.ask_client(
                types.WINDOW_WORK_DONE_PROGRESS_CREATE,
                types.WorkDoneProgressCreateParams(token=self.token or ""),
                CREATE_SECONDS,
            )
            if not self._ended:
                self._begin()

    def _begin(self) -> None:
        self._begun = True
        self._send(
            types.WorkDoneProgressBegin(title=self._title, cancellable=True, message=self._latest)
        )

    def report(self, progress: Progress) -> None:
        """Say what the job does now; too frequent reports of one phase are left out."""
        self._latest = describe(progress)
        now = time.monotonic()
        if progress.phase == self._phase and now - self._sent_at < REPORT_INTERVAL_SECONDS:
            return
        self._phase, self._sent_at = progress.phase, now
        if self._begun and not self._ended:
            self._send(types.WorkDoneProgressReport(message=self._latest, cancellable=True))

    def end(self, message: str) -> None:
        """End it. Safe to call twice."""
        if self._ended:
            return
        self._ended = True
        if self._begun:
            self._send(types.WorkDoneProgressEnd(message=message))

    def _send(self, value: Any) -> None:
        if self.token is not None:
            self._server.protocol.notify(
                types.PROGRESS, types.ProgressParams(token=self.token, value=value)
            )
