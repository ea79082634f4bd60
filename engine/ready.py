"""What a start needs beside weights, kept so that the next start is a faster one.

transformers reads the config and the tokenizer of a folder, whatever their age and form;
importing it and having it do so takes about a third of a start. What it made of them is
plain data: kept beside the int8 weights, it comes back as long as the folder's files, the
library and this module are the same.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from engine.vocabulary import Vocabulary

log = logging.getLogger(__name__)

FORMAT = 1
"""Raised when what is kept, or how, changes."""

MAX_BYTES = 256 << 20

CONFIG = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
    "tie_word_embeddings",
    "rms_norm_eps",
    "hidden_act",
    "rope_parameters",
    "attention_bias",
    "mlp_bias",
    "layer_types",
    "sliding_window",
    "max_position_embeddings",
)
"""What the int8 runner reads of a config of the common shape (engine/int8/shapes.py)."""


class Ready(NamedTuple):
    """A model without its weights.

    Attributes:
        config: of transformers, or an object with the attributes of `CONFIG`.
        vocabulary: its tokenizer and what else it knows of text.
    """

    config: Any
    vocabulary: Vocabulary


def keep(made: Path, folder: Path, ready: Ready) -> None:
    """Write what a next start needs; where that cannot be done, it is only a slower one.

    Args:
        made: the folder of the model's int8 weights.
        folder: the model's.
        ready: what transformers made of it.
    """
    if not _needs_no_transformers(ready.config):
        return
    kept = {
        "config": {name: getattr(ready.config, name, None) for name in CONFIG},
        "tokenizer": ready.vocabulary.tokenizer.to_str(),
        "template": ready.vocabulary.template,
        "names": ready.vocabulary.names,
        "end_tokens": sorted(ready.vocabulary.end_tokens),
    }
    try:
        text = json.dumps(kept)
        draft = made / f"ready.{os.getpid()}"
        draft.write_text(f"{_made_of(folder)} {_sum(text)}\n{text}", "utf-8")
        draft.replace(_file(made))
    except (OSError, TypeError, ValueError) as error:
        log.warning("what the next start needs could not be kept: %s", error)


def read(made: Path, folder: Path) -> Ready | None:
    """Return what an earlier start kept, or None where it is missing, of old or damaged."""
    try:
        file = _file(made)
        if file.stat().st_size > MAX_BYTES:
            return None
        head, _, text = file.read_text("utf-8").partition("\n")
        if head != f"{_made_of(folder)} {_sum(text)}":
            return None
        return _ready(json.loads(text))
    except FileNotFoundError:
        return None
    except Exception as error:  # tokenizers raises bare exceptions
        log.warning("what an earlier start kept is of no use: %s", error)
        return None


def _ready(kept: Mapping[str, Any]) -> Ready:
    config = SimpleNamespace(**kept["config"])
    config.get_text_config = lambda: config
    return Ready(
        config,
        Vocabulary(
            Tokenizer.from_str(kept["tokenizer"]),
            kept["template"],
            kept["names"],
            frozenset(kept["end_tokens"]),
        ),
    )


def _needs_no_transformers(config: Any) -> bool:
    """Whether a model of this config is put together without a formula of transformers."""
    rope = getattr(config, "rope_parameters", None) or {}
    return rope.get("rope_type", "default") == "default" and config.hidden_act == "silu"


def _file(made: Path) -> Path:
    return made / "ready.json"


def _made_of(folder: Path) -> str:
    """Return a sum over everything that the kept data was made from."""
    files = [
        (file.name, file.stat().st_size, file.stat().st_mtime_ns)
        for file in sorted(folder.iterdir())
        if file.suffix != ".safetensors" and file.is_file()
    ]
    libraries = [version("transformers"), version("tokenizers")]
    return _sum(json.dumps([FORMAT, str(folder.resolve()), files, libraries]))


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
