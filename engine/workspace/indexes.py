"""Indexes of the workspaces that requests name: built beside the answers, never waited for.

One is built at a time, by a process of the lowest priority (engine/workspace/child.py). A
request uses what is ready. When an index was not looked at for a while, the next request that
uses it also has it compared with the files, and built anew where they changed.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drafters.workspace import WorkspaceIndex, read_index
from engine.core import Workspace

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "engine.workspace.child")

MAX_INDEX_BYTES = 64 * 1024 * 1024
"""Memory of all indexes together; beyond it the one used longest ago goes."""

MAX_INDEXES = 8

REFRESH_SECONDS = 30.0
"""How old the look at the files may be before the next request has them looked at again."""

BUILD_SECONDS = 300.0
"""A build that takes longer is given up."""


@dataclass(slots=True)
class _Entry:
    """What is known of one workspace: its index, if it is ready, and the files that it is of."""

    index: WorkspaceIndex | None = None
    fingerprint: str = ""
    looked_at: float = float("-inf")
    asked: bool = False


class WorkspaceIndexes:
    """Keeps the indexes of one tokenizer; `close` ends the build that runs.

    `ready` may be called on any thread and never waits. An index that was handed out
    stays as it is, whatever is built meanwhile.

    Args:
        tokenizer_file: the target's `tokenizer.json`; a model without it gets no index.
        refresh_seconds: see `REFRESH_SECONDS`.
    """

    def __init__(self, tokenizer_file: Path, refresh_seconds: float = REFRESH_SECONDS) -> None:
        self._tokenizer_file = tokenizer_file
        self._refresh_seconds = refresh_seconds
        self._changed = threading.Condition()
        # Guarded by `_changed`, as all below.
        self._entries: OrderedDict[Workspace, _Entry] = OrderedDict()
        self._wanted: OrderedDict[Workspace, None] = OrderedDict()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def ready(self, workspace: Workspace) -> WorkspaceIndex | None:
        """Return the index of a workspace, or None while there is none; have it built."""
        with self._changed:
            if self._closed:
                return None
            entry = self._entries.setdefault(workspace, _Entry())
            self._entries.move_to_end(workspace)
            old = time.monotonic() - entry.looked_at > self._refresh_seconds
            if old and not entry.asked:
                entry.asked = True
                self._wanted[workspace] = None
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="redraft-workspace", daemon=True
                    )
                    self._thread.start()
            self._keep_bounds()
            return entry.index

    def settle(self, timeout: float) -> bool:
        """Wait until nothing is being built, at most `timeout` seconds; whether it is so."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout)

    @property
    def bytes(self) -> int:
        """Memory that the indexes take, about."""
        with self._changed:
            return self._bytes()

    def close(self) -> None:
        """End the build that runs and forget all indexes."""
        with self._changed:
            self._closed = True
            self._wanted.clear()
            self._entries.clear()
            if self._process is not None:
                self._process.kill()

    def _bytes(self) -> int:
        return sum(entry.index.bytes for entry in self._entries.values() if entry.index)

    def _keep_bounds(self) -> None:
        """Forget what was used longest ago, but never what was asked for last."""
        while len(self._entries) > 1 and (
            len(self._entries) > MAX_INDEXES or self._bytes() > MAX_INDEX_BYTES
        ):
            gone, _ = self._entries.popitem(last=False)
            self._wanted.pop(gone, None)

    # Everything below runs on the thread that builds.

    def _run(self) -> None:
        try:
            while (workspace := self._next()) is not None:
                self._build(workspace)
        except Exception as error:  # drafts are a help; an answer never fails for them
            log.warning("the workspace is not read: %s", type(error).__name__)
            with self._changed:
                self._end()

    def _next(self) -> Workspace | None:
        with self._changed:
            if self._wanted and not self._closed:
                return self._wanted.popitem(last=False)[0]
            self._end()
            return None

    def _end(self) -> None:
        for workspace in self._wanted:
            entry = self._entries[workspace]
            entry.asked, entry.looked_at = False, time.monotonic()
        self._wanted.clear()
        self._thread = None
        self._changed.notify_all()

    def _build(self, workspace: Workspace) -> None:
        started = time.monotonic()
        with self._changed:
            entry = self._entries.get(workspace)
            if entry is None or self._closed:
                return
            known = entry.fingerprint
        process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        with self._changed:
            self._process = process
            if self._closed:
                process.kill()
        asked = {
            "folders": workspace.folders,
            "suffixes": workspace.suffixes,
            "tokenizer": str(self._tokenizer_file),
            "known": known,
        }
        try:
            out, _ = process.communicate(json.dumps(asked).encode(), BUILD_SECONDS)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            out, _ = process.communicate()
        head, _, body = out.partition(b"\n")
        index = None
        if process.returncode == 0 and body:
            with suppress(ValueError):
                index = read_index(body)
        with self._changed:
            self._process = None
            entry.asked = False
            entry.looked_at = time.monotonic()
            if index is not None:
                entry.index, entry.fingerprint = index, head.decode("ascii", "replace")
            self._keep_bounds()
        if index is not None:
            log.info("indexed %d tokens of the workspace in %.1f s", len(index.tokens),
                     time.monotonic() - started)  # fmt: skip
