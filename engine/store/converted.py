"""The converted form of a GGUF file in the cache: made once, found again by its key."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine import gguf_convert
from engine.core import IsCancelled, OnProgress, Progress
from engine.store.cache import (
    disk_errors,
    locked,
    models_folder,
    need_room,
    private_folder,
    sync_folder,
)

_NOTE = "redraft.json"
_MOST_STEM = 60


def key_of_sum(sha256: str) -> str:
    """The key of a file whose sum is known."""
    return sha256[:12]


def key_of_state(path: Path) -> str:
    """The key of any other file: its place, size and time of change."""
    state = path.stat()
    text = f"{path.resolve()}\0{state.st_size}\0{state.st_mtime_ns}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def converted_folder(path: Path, key: str) -> Path:
    """Where the converted form of the GGUF file `path` is, or will be."""
    stem = path.stem[:_MOST_STEM]
    return _all_converted() / f"{stem}-{key}-v{gguf_convert.FORMAT}"


def is_whole(folder: Path) -> bool:
    """Whether a converted folder has all its files in the sizes they were written with."""
    files = _note(folder).get("files")
    if not isinstance(files, dict) or "model.safetensors" not in files:
        return False
    try:
        return all((folder / name).stat().st_size == size for name, size in files.items())
    except OSError:
        return False


def converted(path: Path, key: str, on_progress: OnProgress, is_cancelled: IsCancelled) -> Path:
    """The converted form of the GGUF file `path`, made now where it is missing or damaged.

    Raises:
        EngineError: `unsupported_model`, `model_not_found`, `disk_full`.
        Cancelled: `is_cancelled` answered True.
    """
    folder = converted_folder(path, key)
    if is_whole(folder):
        return folder
    waiting = Progress("converting", None, "another redraft is converting it")
    with locked(f"convert-{key}", on_progress, is_cancelled, waiting):
        if is_whole(folder):
            return folder
        _build(path, folder, on_progress, is_cancelled)
        _remove_older(path, folder)
    return folder


def _build(path: Path, folder: Path, on_progress: OnProgress, is_cancelled: IsCancelled) -> None:
    what = f"Converting {path.name}"
    size = gguf_convert.converted_size(gguf_convert.read(path))
    parent = private_folder(folder.parent)
    for left_over in parent.glob(f".{folder.name}.*"):  # of a process that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    need_room(parent, size, what)
    with disk_errors(parent, size, what):
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=parent))
        try:
            gguf_convert.convert(path, draft, on_progress, is_cancelled)
            files = {file.name: file.stat().st_size for file in sorted(draft.iterdir())}
            note = {"source": str(path.resolve()), "format": gguf_convert.FORMAT, "files": files}
            (draft / _NOTE).write_text(json.dumps(note, indent=2), "utf-8")
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(draft, folder)
            sync_folder(parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _remove_older(path: Path, kept: Path) -> None:
    """Remove conversions of earlier states of the same file; each takes gigabytes."""
    for folder in _folders():
        if folder != kept and _note(folder).get("source") == str(path.resolve()):
            shutil.rmtree(folder, ignore_errors=True)


def _all_converted() -> Path:
    return models_folder() / "converted"


def _folders() -> Iterator[Path]:
    return (entry for entry in _all_converted().iterdir() if not entry.name.startswith("."))


def _note(folder: Path) -> dict[str, Any]:
    try:
        note = json.loads((folder / _NOTE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}
