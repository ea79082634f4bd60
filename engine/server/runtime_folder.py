"""The private folder of a running engine: its socket, its lock and `engine.json`.

lsp_server/engine_files.py looks in the same places; it must not import this module, so
a test compares the two.
"""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from pathlib import Path

import platformdirs

FOLDER_VARIABLE = "REDRAFT_RUNTIME_DIR"


class StartError(Exception):
    """The engine cannot start, in one sentence for people."""


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
    folders.append(Path(tempfile.gettempdir()) / f"redraft-{user_id()}")
    return folders


def user_id() -> int:
    """The user's number; 0 where the system has none."""
    return os.getuid() if hasattr(os, "getuid") else 0


def make_runtime_folder() -> Path:
    """Create the runtime folder, or take the one that is there, with mode 0700.

    Raises:
        StartError: no folder can be made private.
    """
    problem = "there is no place for it"
    for folder in candidate_folders():
        try:
            return make_private(folder)
        except StartError as error:
            problem = str(error)
    raise StartError(
        f"The engine's runtime folder cannot be used: {problem}. "
        f"Set {FOLDER_VARIABLE} to a folder of your own."
    )


def make_private(folder: Path) -> Path:
    """Create `folder` with mode 0700, or check and mend the mode of an existing one.

    Raises:
        StartError: it is a link, belongs to somebody else, or cannot be made.
    """
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise StartError(f"{folder} is not a folder")
        if not hasattr(os, "getuid"):
            return folder
        _check_parent(folder)
        if status.st_uid != os.getuid():
            raise StartError(f"{folder} belongs to another user")
        if status.st_mode & 0o077:
            folder.chmod(0o700)
            if folder.lstat().st_mode & 0o077:
                raise StartError(f"{folder} is open to other users and stays so")
    except OSError as error:
        raise StartError(f"{folder} cannot be made ({error.strerror})") from None
    return folder


def _check_parent(folder: Path) -> None:
    """Nobody else may be able to swap the folder: its parent is ours, root's, or sticky."""
    status = folder.parent.stat()
    if status.st_uid not in (0, os.getuid()):
        raise StartError(f"{folder.parent} belongs to another user")
    if status.st_mode & 0o002 and not status.st_mode & stat.S_ISVTX:
        raise StartError(f"{folder.parent} can be changed by everybody")


def log_folder(runtime: Path) -> Path:
    """Where the log goes: the user's log folder, or beside the socket when that was moved."""
    if os.environ.get(FOLDER_VARIABLE):
        return runtime
    folder = Path(platformdirs.user_log_dir("redraft", appauthor=False))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return runtime
    return folder if os.access(folder, os.W_OK) else runtime


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, so that no reader sees half of it."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
