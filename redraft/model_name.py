"""Model names as typed: a relative path means the folder that the command was run in."""

from __future__ import annotations

import os
from pathlib import Path


def absolute_model(model: str | None) -> str | None:
    """Make a path absolute, because the engine runs in another folder; keep other names.

    As docs/models.md says: a known name wins over a path, an existing path over a hub id.
    """
    if not model or _is_known(model):
        return model
    try:
        path = Path(model).expanduser()
        is_path = path.exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, no such user
        return model
    if is_path or model.startswith((".", "~")) or model.endswith(".gguf"):
        return os.path.abspath(path)
    return model


def _is_known(model: str) -> bool:
    try:
        from engine.store.known import find_known
    except ModuleNotFoundError:  # the engine is not installed here
        return False
    return find_known(model) is not None
