"""The model store: from what a person types to a folder that transformers can load."""

from __future__ import annotations

import re
from pathlib import Path

from engine.core import EngineError, IsCancelled, OnProgress
from engine.store import converted as conversions
from engine.store.known import KNOWN_MODELS, KnownModel, find_known
from engine.store.local import check_folder
from engine.store.pull import Verified, is_pulled, path, pull, unknown_model, verify

__all__ = [
    "KNOWN_MODELS",
    "KnownModel",
    "Verified",
    "find_known",
    "is_cached",
    "is_pulled",
    "path",
    "pull",
    "resolve",
    "verify",
]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")


def resolve(model: str, on_progress: OnProgress, is_cancelled: IsCancelled) -> Path:
    """The local folder of `model`, fetched and converted where that is still to be done.

    Args:
        model: a name of the table, a hub id (`org/name`), a folder with config.json and
            safetensors, or the path of a `.gguf` file.
        on_progress: told about fetching and converting.
        is_cancelled: asked several times a second.

    Returns:
        A folder for `from_pretrained`: config.json, the tokenizer, *.safetensors.

    Raises:
        EngineError: `model_not_found`, `unsupported_model`, `download_failed`,
            `download_damaged` or `disk_full`.
        Cancelled: `is_cancelled` answered True.
    """
    known = find_known(model)
    if known is not None:
        return _resolve_known(known, on_progress, is_cancelled)
    place = _existing(model)
    if place is not None and place.is_dir():
        return check_folder(place)
    if place is not None:
        key = conversions.key_of_state(place)
        return conversions.converted(place, key, on_progress, is_cancelled)
    if _looks_like_path(model):
        raise EngineError("model_not_found", f"There is no file or folder {model}; check the path.")
    if _HUB_ID.fullmatch(model):
        from engine.store.snapshot import snapshot

        return check_folder(snapshot(model, on_progress, is_cancelled))
    raise unknown_model(model)


def is_cached(model: str) -> bool:
    """Whether `resolve(model)` would need no network."""
    known = find_known(model)
    if known is not None:
        return is_pulled(known) or conversions.is_whole(_known_folder(known))
    if _existing(model) is not None:
        return True
    if not _HUB_ID.fullmatch(model):
        return False
    from engine.store.snapshot import snapshot_on_disk

    return snapshot_on_disk(model) is not None


def _resolve_known(known: KnownModel, on_progress: OnProgress, is_cancelled: IsCancelled) -> Path:
    folder = _known_folder(known)
    if conversions.is_whole(folder):
        return folder
    file = pull(known.name, on_progress, is_cancelled)
    key = conversions.key_of_sum(known.sha256)
    return conversions.converted(file, key, on_progress, is_cancelled)


def _known_folder(known: KnownModel) -> Path:
    return conversions.converted_folder(path(known.name), conversions.key_of_sum(known.sha256))


def _existing(model: str) -> Path | None:
    try:
        place = Path(model).expanduser()
        return place.absolute() if model and place.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, no such user
        return None


def _looks_like_path(model: str) -> bool:
    return model.startswith((".", "/", "~")) or model.endswith(".gguf") or "\\" in model
