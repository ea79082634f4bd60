"""`redraft/hunks`: the answer so far, at most 20 times a second, the latest wins.

A new phase of the work is told at once: a person waits for nothing else before the text.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from lsp_server.convert import hunks_json, range_json
from lsp_server.core import Hunk, Progress
from lsp_server.jobs import Job
from lsp_server.progress import progress_json

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

HUNKS_INTERVAL_SECONDS = 0.05
# A client that is behind gets no more updates until it has read most of what was sent.
MAX_UNSENT_BYTES = 1024 * 1024


class HunkSender:
    """Sends one job's hunks to a client that draws them; to any other, nothing."""

    def __init__(self, server: RedraftServer, job: Job) -> None:
        self._server = server
        self._job = job
        self._on = server.session.capabilities.hunks
        self._hunks: tuple[Hunk, ...] = ()
        self._progress: Progress | None = None
        self._sent_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._done = False

    def update(
        self, *, hunks: tuple[Hunk, ...] | None = None, progress: Progress | None = None
    ) -> None:
        """Take the newest hunks or progress, and send now or when the interval is over."""
        if not self._on or self._done:
            return
        if hunks is not None:
            self._hunks = hunks
        new_phase = False
        if progress is not None:
            new_phase = self._progress is None or progress.phase != self._progress.phase
            self._progress = progress
        if self._timer is not None and not new_phase:
            return
        wait = self._sent_at + HUNKS_INTERVAL_SECONDS - time.monotonic()
        if wait <= 0 or new_phase:
            self._send()
        else:
            self._timer = asyncio.get_running_loop().call_later(wait, self._send)

    def finish(self, hunks: tuple[Hunk, ...]) -> None:
        """Send the last word: these hunks, `done`. May be said again after a change."""
        if not self._on:
            return
        self._hunks, self._progress, self._done = hunks, None, True
        self._send()

    def _send(self) -> None:
        self._stop_timer()
        if not self._done and self._server.unsent_bytes > MAX_UNSENT_BYTES:
            self._timer = asyncio.get_running_loop().call_later(HUNKS_INTERVAL_SECONDS, self._send)
            return
        self._sent_at = time.monotonic()
        job, session = self._job, self._server.session
        document = session.documents.get(job.uri)
        if document is None or document.too_large:
            if self._done:
                self._notify(job.version, None, [])
            return
        encoding = session.capabilities.encoding
        span = range_json(document.lines, job.span.start, job.span.end, encoding)
        hunks = hunks_json(document.lines, job.hunks_now(self._hunks), encoding)
        self._notify(document.version, span, hunks)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _notify(self, version: int | None, span: object, hunks: list[dict[str, object]]) -> None:
        job = self._job
        params: dict[str, object] = {
            "jobId": job.id,
            "uri": job.uri,
            "version": version,
            "span": span,
            "hunks": hunks,
            "done": self._done,
        }
        if self._progress is not None:
            params["progress"] = progress_json(self._progress)
        self._server.protocol.notify("redraft/hunks", params)
