"""Writes the tokenizer and chat template of a GGUF file as a Hugging Face folder has them."""

from __future__ import annotations

from pathlib import Path

from engine.core import EngineError


def write_tokenizer(path: Path, folder: Path) -> None:
    """Write `tokenizer.json`, `tokenizer_config.json` and the chat template into `folder`.

    transformers builds the tokenizer; it is saved under its general class, which reads
    `tokenizer.json` as it stands.

    Raises:
        EngineError: `unsupported_model` for a kind of tokenizer that transformers lacks.
    """
    from transformers import PreTrainedTokenizerFast

    try:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(str(path.parent), gguf_file=path.name)
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(
            "unsupported_model",
            f"The tokenizer in {path.name} cannot be read ({error}); "
            "give the safetensors repository of the same model instead.",
        ) from error
    tokenizer.save_pretrained(folder)
