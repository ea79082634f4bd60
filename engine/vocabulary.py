"""What a model knows of text: its tokenizer, its chat template, what ends an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.normalizers import NFC, NFKC

from engine.core import EngineError


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The part of a model that needs no weights.

    Attributes:
        tokenizer: from text to token ids and back.
        template: the chat template; None where the model has none.
        names: special tokens by the names that templates know them by.
        end_tokens: ids that end an answer.
    """

    tokenizer: Tokenizer
    template: str | None
    names: Mapping[str, Any]
    end_tokens: frozenset[int]


def vocabulary_of(name: str, tokenizer: Any, folder: Path, config: Any = None) -> Vocabulary:
    """Return the vocabulary of a model.

    Args:
        name: of the model, for people.
        tokenizer: of transformers.
        folder: of the model.
        config: of transformers; it may name end tokens.

    Raises:
        EngineError: `unsupported_model`: it has no tokenizer that can be used.
    """
    backend = _backend(name, tokenizer)
    return Vocabulary(
        backend,
        tokenizer.get_chat_template() if tokenizer.chat_template else None,
        {key: _plain(value) for key, value in tokenizer.special_tokens_map.items()},
        _end_tokens(folder, config, tokenizer),
    )


def _backend(name: str, tokenizer: Any) -> Tokenizer:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    # Without its files, transformers makes a tokenizer that turns every text into nothing.
    if backend is None or not backend.encode("x = 1", add_special_tokens=False).ids:
        raise EngineError(
            "unsupported_model",
            f"{name} has no fast tokenizer (tokenizer.json), which redraft needs.",
        )
    backend.no_truncation()
    backend.no_padding()
    # Some tokenizer classes compose characters (NFC), so a decomposed letter would come
    # back composed: bytes of the user's text would change. Models know both forms.
    backend.normalizer = without_composing(backend.normalizer)
    return backend


def without_composing(normalizer: Any) -> Any:
    """Return a tokenizer's normaliser, or None where it is a Unicode composition."""
    return None if isinstance(normalizer, NFC | NFKC) else normalizer


def _plain(value: Any) -> Any:
    return [str(one) for one in value] if isinstance(value, list | tuple) else str(value)


def _end_tokens(folder: Path, config: Any, tokenizer: Any) -> frozenset[int]:
    """Collect what ends an answer: the generation config's ids and the tokenizer's own."""
    found: set[int] = set()
    for ids in (
        _generation_config(folder).get("eos_token_id"),
        getattr(config, "eos_token_id", None),
        tokenizer.eos_token_id,
    ):
        found.update([ids] if isinstance(ids, int) else ids or [])
    # GGUF files name one end token; chat models end a turn with these too.
    for text in ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>"):
        token = tokenizer.get_added_vocab().get(text)
        if token is not None:
            found.add(token)
    return frozenset(found)


def _generation_config(folder: Path) -> Mapping[str, Any]:
    file = folder / "generation_config.json"
    read = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return read if isinstance(read, dict) else {}
