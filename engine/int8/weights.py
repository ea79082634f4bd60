"""The int8 weights of a model folder, made once and kept in the cache as safetensors."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from engine.core import Cancelled, IsCancelled, OnProgress, Progress
from engine.int8.linear import quantise
from engine.store.cache import disk_errors, locked, models_folder, need_room, private_folder

FORMAT = 1
"""Raised when what is stored, or how, changes."""

SCALE = ".scale"
"""Behind the name of a weight: the name of its scales."""

SHARD_BYTES = 512 << 20
_DONE = "done.json"


def int8_folder(folder: Path) -> Path:
    """Return where the int8 weights of the model in `folder` are, or will be."""
    state = [
        (str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns)
        for file in sorted(folder.glob("*.safetensors"))
    ]
    key = hashlib.sha256(json.dumps(state).encode()).hexdigest()[:12]
    return models_folder() / "int8" / f"{folder.name[:60]}-{key}-v{FORMAT}"


def ready_int8(folder: Path) -> Path | None:
    """Return the folder of int8 weights where it has been made, else None."""
    made = int8_folder(folder)
    return made if _is_whole(made) else None


def ensure_int8(
    folder: Path, names: Sequence[str], on_progress: OnProgress, is_cancelled: IsCancelled
) -> Path:
    """Return the folder of int8 weights, made now where it is missing.

    Args:
        folder: the model, with float weights.
        names: the weights to quantise, as named in `folder`.
        on_progress: told about `converting`.
        is_cancelled: asked before every weight.

    Raises:
        EngineError: `disk_full`.
        Cancelled: `is_cancelled` answered True.
    """
    final = int8_folder(folder)
    if _is_whole(final):
        return final
    waiting = Progress("converting", None, "another redraft is converting it")
    with locked(final.name, on_progress, is_cancelled, waiting):
        if not _is_whole(final):
            _build(folder, final, names, on_progress, is_cancelled)
            _remove_older(folder, final)
    return final


def read_tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of a folder's safetensors files, mapped and not yet read."""
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a dict
                yield name, tensors.get_tensor(name)


def read_shapes(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """Yield the name and the shape of every tensor of a folder's safetensors files."""
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - not a dict
                yield name, list(tensors.get_slice(name).get_shape())


def _build(
    folder: Path,
    final: Path,
    names: Sequence[str],
    on_progress: OnProgress,
    is_cancelled: IsCancelled,
) -> None:
    parent = private_folder(final.parent)
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors")) // 2
    what = f"The int8 form of {folder.name}"
    for left_over in parent.glob(f".{final.name}.*"):  # of a process that was killed
        shutil.rmtree(left_over, ignore_errors=True)
    need_room(parent, size, what)
    draft = Path(tempfile.mkdtemp(prefix=f".{final.name}.", dir=parent))
    try:
        with disk_errors(parent, size, what):
            _write_shards(folder, draft, set(names), on_progress, is_cancelled)
            files = {file.name: file.stat().st_size for file in draft.iterdir()}
            note = {"format": FORMAT, "source": str(folder.resolve()), "files": files}
            (draft / _DONE).write_text(json.dumps(note), "utf-8")
            shutil.rmtree(final, ignore_errors=True)
            draft.rename(final)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _remove_older(folder: Path, kept: Path) -> None:
    """Remove what was made of earlier states of the same model; each takes gigabytes."""
    for other in kept.parent.iterdir():
        if other != kept and _note(other).get("source") == str(folder.resolve()):
            shutil.rmtree(other, ignore_errors=True)


def _is_whole(made: Path) -> bool:
    """Whether all files are there in the sizes they were written with."""
    files = _note(made).get("files")
    try:
        return isinstance(files, dict) and all(
            (made / name).stat().st_size == size for name, size in files.items()
        )
    except OSError:
        return False


def _note(made: Path) -> Mapping[str, Any]:
    try:
        note = json.loads((made / _DONE).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def _write_shards(
    folder: Path,
    draft: Path,
    names: set[str],
    on_progress: OnProgress,
    is_cancelled: IsCancelled,
) -> None:
    shard: dict[str, torch.Tensor] = {}
    held = written = done = 0
    for name, tensor in read_tensors(folder):
        if is_cancelled():
            raise Cancelled
        if name not in names:
            continue
        weight, scale = quantise(tensor)
        shard[name], shard[name + SCALE] = weight, scale
        held += weight.numel()
        done += 1
        on_progress(Progress("converting", done / len(names), "to int8 for this CPU"))
        if held >= SHARD_BYTES:
            save_file(shard, draft / f"int8-{written:03}.safetensors")
            shard, held, written = {}, 0, written + 1
    if shard:
        save_file(shard, draft / f"int8-{written:03}.safetensors")
