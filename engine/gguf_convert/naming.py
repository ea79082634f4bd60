"""From the header of a GGUF file to transformers' words: the config and the tensor names.

transformers' own tables and transforms are used (`modeling_gguf_pytorch_utils`), so that what
it can load from GGUF can be converted, and nothing else.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.core import EngineError
from engine.gguf_convert.header import Header
from engine.gguf_convert.rope import llama3_scaling

if TYPE_CHECKING:
    import numpy as np
    from transformers import PreTrainedConfig

# Their tensors are cut up or merged on the way, which the streaming writer does not do.
_NOT_CONVERTED = ("qwen2moe", "qwen3moe", "gpt_oss", "gpt-oss", "minimax-m2", "t5", "t5encoder")
_SEQUENCE_ENDS = ("eos_token_id", "eot_token_id", "eom_token_id")


class Target(NamedTuple):
    """What the weights of a file become.

    Attributes:
        config: the model's configuration, of dtype bfloat16.
        shapes: the name and shape of every tensor the model wants, each stored once.
        names: GGUF tensor name -> the model's tensor name.
        transform: (float32 weights, GGUF name) -> the weights as transformers wants them,
            or None where nothing is to be done.
    """

    config: PreTrainedConfig
    shapes: dict[str, tuple[int, ...]]
    names: dict[str, str]
    transform: Callable[[np.ndarray, str], np.ndarray] | None


def describe_target(header: Header, path: Path) -> Target:
    """Work out what `header` becomes in transformers.

    Raises:
        EngineError: `unsupported_model`, naming the architecture.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

    fields = _config_fields(header, path)
    processor = TENSOR_PROCESSORS.get(header.architecture, TensorProcessor)(config=fields)
    try:
        config = _config(fields, header)
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        names = _tensor_names(model, processor)
    except (ValueError, KeyError, NotImplementedError, AttributeError, TypeError) as error:
        raise _unsupported(header.architecture, path) from error
    # Tied weights are one tensor under two names; the first is the one that is stored.
    shapes: dict[str, tuple[int, ...]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=True):
        shapes[name] = tuple(parameter.shape)
    persistent = model.state_dict()
    shapes.update(
        (name, tuple(buffer.shape)) for name, buffer in model.named_buffers() if name in persistent
    )
    plain = type(processor) is TensorProcessor
    return Target(
        config,
        shapes,
        {name: ours for name, ours in names.items() if ours in shapes},
        None if plain else lambda weights, name: processor.process(weights, name).weights,
    )


class _Flat(NamedTuple):
    """A model without its modules, as far as `get_gguf_hf_weights_map` looks at it."""

    config: Any
    state: dict[str, Any]

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def named_children(self) -> tuple[()]:
        return ()


def _tensor_names(model: Any, processor: Any) -> dict[str, str]:
    from transformers.modeling_gguf_pytorch_utils import get_gguf_hf_weights_map

    # With the whole model it builds a name map for each of several hundred modules (7 s), and
    # only a few architectures need the ones of the modules.
    state = model.state_dict()
    names = get_gguf_hf_weights_map(_Flat(model.config, state), processor)
    if set(names.values()) >= set(state):
        return names
    return get_gguf_hf_weights_map(model, processor)


def _config_fields(header: Header, path: Path) -> dict[str, Any]:
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    if header.architecture in _NOT_CONVERTED:
        raise _unsupported(header.architecture, path)
    # transformers reads the header with the slow reader, so it gets the slim one; and it warns
    # that the vocabulary is missing, which is filled in below.
    logger = logging.getLogger("transformers.modeling_gguf_pytorch_utils")
    level = logger.level
    with tempfile.TemporaryDirectory(prefix="redraft-") as folder:
        slim = Path(folder) / path.name
        slim.write_bytes(header.slim)
        logger.setLevel(logging.ERROR)
        try:
            fields = load_gguf_checkpoint(str(slim), return_tensors=False)["config"]
        except (ValueError, KeyError) as error:
            raise _unsupported(header.architecture, path) from error
        finally:
            logger.setLevel(level)
    tokens = header.metadata.get("tokenizer.ggml.tokens")
    if "vocab_size" not in fields and isinstance(tokens, int):
        fields["vocab_size"] = tokens
    try:
        scaling = llama3_scaling(header, path, float(fields.get("rope_theta") or 10_000.0))
    except ValueError as error:
        raise _unsupported(header.architecture, path) from error
    if scaling is not None:
        fields.pop("rope_theta", None)
        fields["rope_parameters"] = scaling
    return fields


def _config(fields: dict[str, Any], header: Header) -> PreTrainedConfig:
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    values = dict(fields)
    model_type = values.pop("model_type")
    if model_type not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise ValueError(model_type)
    metadata = header.metadata
    ends = [metadata.get(f"tokenizer.ggml.{name}") for name in _SEQUENCE_ENDS]
    ends = list(dict.fromkeys(int(end) for end in ends if end is not None))
    if ends:
        values.setdefault("eos_token_id", ends[0] if len(ends) == 1 else ends)
    values.setdefault("bos_token_id", metadata.get("tokenizer.ggml.bos_token_id"))
    values.setdefault("pad_token_id", metadata.get("tokenizer.ggml.padding_token_id"))
    values["architectures"] = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]]
    values["dtype"] = "bfloat16"
    return AutoConfig.for_model(model_type, **values)


def _unsupported(architecture: str, path: Path) -> EngineError:
    return EngineError(
        "unsupported_model",
        f"{path.name} is a GGUF file of the architecture {architecture!r}, which redraft cannot "
        "convert; give the safetensors repository of the same model instead.",
    )
