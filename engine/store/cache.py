"""The cache folder: where it is, room in it, locks, and what is known of its files."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs
from filelock import FileLock, Timeout

from engine.core import Cancelled, EngineError, IsCancelled, OnProgress, Progress

CACHE_VARIABLE = "REDRAFT_CACHE_DIR"
_LOCK_POLL = 0.25  # seconds between two looks at a lock and at the cancel flag
_HASH_CHUNK = 4 * 1024 * 1024
_NO_ROOM = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def models_folder() -> Path:
    """The folder of model files, made with mode 0700 where it is missing.

    Raises:
        EngineError: `download_failed` when it cannot be made.
    """
    base = os.environ.get(CACHE_VARIABLE)
    root = Path(base).expanduser() if base else Path(platformdirs.user_cache_dir("redraft"))
    return private_folder(root.absolute() / "models")


def private_folder(folder: Path) -> Path:
    """Make `folder` and its missing parents with mode 0700; returns it."""
    try:
        missing = [f for f in (folder, *folder.parents) if not f.exists()]
        for each in reversed(missing):
            each.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise EngineError(
            "download_failed",
            f"The cache folder {folder} cannot be made ({error.strerror}); "
            f"set {CACHE_VARIABLE} to a folder of yours.",
        ) from error
    return folder


@contextmanager
def locked(
    name: str, on_progress: OnProgress, is_cancelled: IsCancelled, waiting: Progress
) -> Iterator[None]:
    """Hold the lock `NAME.lock` of the cache; says `waiting` while somebody else holds it.

    Raises:
        Cancelled: `is_cancelled` answered True while waiting.
    """
    lock = FileLock(models_folder() / f"{name}.lock", mode=0o600)
    told = False
    while True:
        try:
            lock.acquire(timeout=0 if not told else _LOCK_POLL)
            break
        except Timeout:
            if is_cancelled():
                raise Cancelled from None
            if not told:
                on_progress(waiting)
                told = True
    try:
        yield
    finally:
        lock.release()


def need_room(folder: Path, size: int, what: str) -> None:
    """Check that `size` bytes fit into `folder`.

    Raises:
        EngineError: `disk_full`.
    """
    free = shutil.disk_usage(folder).free
    if free < size:
        raise disk_full(folder, size, what, free)


def disk_full(folder: Path, size: int, what: str, free: int | None = None) -> EngineError:
    """The error of a disk that has no room for the `size` bytes of `what`."""
    if free is None:
        free = shutil.disk_usage(folder).free
    return EngineError(
        "disk_full",
        f"{what} needs {gigabytes(size)} in {folder}, where {gigabytes(free)} are free; "
        f"make room or set {CACHE_VARIABLE} to a folder on another disk.",
    )


@contextmanager
def disk_errors(folder: Path, size: int, what: str) -> Iterator[None]:
    """Turn a full or unwritable disk inside into an `EngineError` that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise disk_full(folder, size, what) from error
        raise EngineError(
            "download_failed",
            f"{what} cannot be stored in {folder} ({error.strerror or error}); "
            f"set {CACHE_VARIABLE} to a folder of yours.",
        ) from error


def gigabytes(size: int) -> str:
    """A size for people, e.g. `4.7 GB`."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"


def file_sha256(path: Path, on_progress: OnProgress, is_cancelled: IsCancelled) -> str:
    """The sha256 of a file in hexadecimal.

    Raises:
        Cancelled: `is_cancelled` answered True.
    """
    total = path.stat().st_size or 1
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(_HASH_CHUNK):
            if is_cancelled():
                raise Cancelled
            digest.update(chunk)
            done += len(chunk)
            on_progress(Progress("fetching", done / total, "checking the sum"))
    return digest.hexdigest()


def move_into_place(part: Path, final: Path) -> None:
    """Rename a finished file; after a crash there is the whole file or none."""
    with part.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(part, final)
    sync_folder(final.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` last; does nothing where folders cannot be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def record_sum(path: Path, sha256: str) -> None:
    """Note beside a file that its sum was computed, and of which state of the file."""
    state = path.stat()
    note = {"sha256": sha256, "size": state.st_size, "mtime_ns": state.st_mtime_ns}
    draft = path.with_name(path.name + ".json.new")
    draft.write_text(json.dumps(note), "utf-8")
    os.replace(draft, _sidecar(path))


def forget_sum(path: Path) -> None:
    """Remove the note of `record_sum`."""
    _sidecar(path).unlink(missing_ok=True)


def has_recorded_sum(path: Path, sha256: str) -> bool:
    """Whether the file is there, with this sum, and untouched since the sum was computed."""
    try:
        note = json.loads(_sidecar(path).read_text("utf-8"))
        state = path.stat()
        expected = {"sha256": sha256, "size": state.st_size, "mtime_ns": state.st_mtime_ns}
        return bool(note == expected)
    except (OSError, ValueError):
        return False
