"""Finds the running engine's `engine.json`, and says where its output goes.

The engine writes into the first of these folders that it can make private
(engine/server/runtime_folder.py). This module must not import the engine, so a test
compares the two.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

import platformdirs

from lsp_server.engine_http import Endpoint

FOLDER_VARIABLE = "REDRAFT_RUNTIME_DIR"
MAX_RECORD_BYTES = 64 * 1024


class EngineRecord(NamedTuple):
    """What `engine.json` says; the engine may be gone all the same."""

    endpoint: Endpoint
    pid: int
    version: str


def candidate_folders() -> list[Path]:
    """Where the runtime folder may be, best first."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return [Path(chosen).absolute()]
    folders: list[Path] = []
    try:
        with warnings.catch_warnings():
            # It warns where the system has no folder for this, which is common in containers.
            warnings.simplefilter("ignore")
            folders.append(Path(platformdirs.user_runtime_dir("redraft", appauthor=False)))
    except OSError:
        pass
    user = os.getuid() if hasattr(os, "getuid") else 0
    folders.append(Path(tempfile.gettempdir()) / f"redraft-{user}")
    return folders


def find_record() -> EngineRecord | None:
    """The engine's record, or None where there is none that can be trusted."""
    for folder in candidate_folders():
        record = _read_record(folder / "engine.json")
        if record is not None:
            return record
    return None


def _read_record(path: Path) -> EngineRecord | None:
    try:
        # Whoever can write this file or its folder gets to see source text.
        if not (_is_private(path.parent) and _is_private(path)):
            return None
        with path.open("rb") as file:
            value = json.loads(file.read(MAX_RECORD_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    url, token = value.get("url"), value.get("token")
    pid, version = value.get("pid"), value.get("version")
    if not isinstance(url, str) or not url.startswith(("unix:/", "http://127.0.0.1:")):
        return None
    if not (token is None or isinstance(token, str)) or not isinstance(pid, int):
        return None
    return EngineRecord(Endpoint(url, token), pid, str(version))


def _is_private(path: Path) -> bool:
    if not hasattr(os, "getuid"):
        return True
    status = path.lstat()
    return status.st_uid == os.getuid() and not status.st_mode & 0o022


def untrusted_record() -> Path | None:
    """An `engine.json` that is there but that others can change, so that it is not read."""
    for folder in candidate_folders():
        path = folder / "engine.json"
        with contextlib.suppress(OSError):
            if not (_is_private(folder) and _is_private(path)):
                return path
    return None


def output_file() -> Path:
    """Where the output of an engine that we start goes; its folder is made.

    Raises:
        OSError: the folder that the user chose cannot be made.
    """
    chosen = os.environ.get(FOLDER_VARIABLE)
    folder = Path(chosen or platformdirs.user_log_dir("redraft", appauthor=False)).absolute()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if chosen or os.access(folder, os.W_OK):
            return folder / "engine.out"
    except OSError:
        if chosen:
            raise
    return Path(os.devnull)  # a home that cannot be written; only words are lost
