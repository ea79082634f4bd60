"""Model folders that are already on this machine, in the layout of Hugging Face."""

from __future__ import annotations

import json
from pathlib import Path

from engine.core import EngineError


def check_folder(folder: Path) -> Path:
    """Check that `folder` has a config and whole safetensors; returns it.

    Raises:
        EngineError: `unsupported_model` that says what is missing.
    """
    if not (folder / "config.json").is_file():
        ggufs = sorted(folder.glob("*.gguf"))
        hint = f"give the path of {ggufs[0].name} itself" if ggufs else "give a model's folder"
        raise EngineError("unsupported_model", f"{folder} has no config.json; {hint}.")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        _check_shards(folder, index)
        return folder
    if any(folder.glob("*.safetensors")):
        return folder
    pickles = any(folder.glob("*.bin")) or any(folder.glob("*.pt"))
    if pickles:
        raise EngineError(
            "unsupported_model",
            f"{folder} has its weights only as .bin or .pt files, which can run code when they "
            "are read, so redraft takes safetensors only; convert them first.",
        )
    raise EngineError(
        "unsupported_model", f"{folder} has no .safetensors file; fetch the model's weights."
    )


def _check_shards(folder: Path, index: Path) -> None:
    try:
        names = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise EngineError(
            "unsupported_model", f"{index} cannot be read; fetch the model again."
        ) from None
    missing = sorted(name for name in names if not (folder / str(name)).is_file())
    if missing:
        raise EngineError(
            "unsupported_model",
            f"{folder} lacks {len(missing)} of its {len(names)} weight files, e.g. {missing[0]}; "
            "fetch the model again.",
        )
