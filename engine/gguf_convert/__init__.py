"""Converts a GGUF file once into a folder that transformers maps directly.

The folder has `model.safetensors` (bfloat16), `config.json`, `generation_config.json` and the
tokenizer with the file's chat template.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from engine.core import Cancelled, EngineError, IsCancelled, OnProgress, Progress

if TYPE_CHECKING:
    from engine.gguf_convert.header import Header

FORMAT = 1
"""Goes up when the converted folder changes, so that older ones are not read."""

BYTES_PER_NUMBER = 2


def read(path: Path) -> Header:
    """The header of a GGUF file.

    Raises:
        EngineError: `unsupported_model` for a file that is no GGUF file or is cut off,
            `model_not_found` for one that cannot be read.
    """
    from engine.gguf_convert.header import GgufDamaged, read_header

    try:
        return read_header(path)
    except GgufDamaged as error:
        raise EngineError(
            "unsupported_model",
            f"{path} is not a whole GGUF file: {error}; fetch it again.",
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is empty"
        raise EngineError("model_not_found", f"{path} cannot be read: {reason}.") from error


def converted_size(header: Header) -> int:
    """Bytes that the converted folder needs."""
    from math import prod

    numbers = sum(prod(tensor.shape) for tensor in header.tensors)
    return numbers * BYTES_PER_NUMBER + 32 * 1024 * 1024


def convert(path: Path, folder: Path, on_progress: OnProgress, is_cancelled: IsCancelled) -> None:
    """Convert the GGUF file `path` into the empty folder `folder`.

    Raises:
        EngineError: `unsupported_model`.
        Cancelled: `is_cancelled` answered True.
        OSError: the folder cannot be written.
    """
    # The imports alone take seconds, so the first word is said before them.
    on_progress(Progress("converting", 0.0, f"unpacking {path.name}"))
    header = read(path)
    from engine.gguf_convert.naming import describe_target
    from engine.gguf_convert.tokenizer import write_tokenizer
    from engine.gguf_convert.weights import write_weights

    target = describe_target(header, path)
    if is_cancelled():
        raise Cancelled
    write_tokenizer(path, folder)
    target.config.save_pretrained(folder)
    _write_generation_config(folder, target.config)

    def report(fraction: float) -> None:
        on_progress(Progress("converting", fraction, f"unpacking {path.name}, {fraction:.0%}"))

    write_weights(path, header.tensors, target, folder / "model.safetensors", report, is_cancelled)


def _write_generation_config(folder: Path, config: object) -> None:
    names = ("bos_token_id", "eos_token_id", "pad_token_id")
    values = {name: getattr(config, name, None) for name in names}
    kept = {name: value for name, value in values.items() if value is not None}
    text = json.dumps({"_from_model_config": True, **kept}, indent=2)
    (folder / "generation_config.json").write_text(text + "\n", "utf-8")
