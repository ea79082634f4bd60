"""Puts a decoder of the common shape together from a folder, with int8 linears.

transformers' own modelling code would do it too, but takes two seconds and a hundred
megabytes to import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from engine.core import EngineError, IsCancelled, OnProgress
from engine.int8.linear import Int8Linear, is_supported
from engine.int8.modules import (
    Attention,
    Decoder,
    Embedding,
    Int8Model,
    Layer,
    Mlp,
    Norm,
    RotaryEmbedding,
)
from engine.int8.packing import Packing
from engine.int8.shapes import (
    EMBEDDING,
    HEAD,
    NORM,
    expected_shapes,
    head_size,
    linear_names,
    weight_of,
)
from engine.int8.weights import ensure_int8, read_shapes, read_tensors, ready_int8
from engine.layers import has_common_shape


def can_run_int8(config: Any) -> bool:
    """Return whether the model of `config` runs in int8 on this machine."""
    return has_common_shape(config) and is_supported()


def begin_packing(folder: Path) -> Packing | None:
    """Begin to pack the model in `folder`, before its config is read; None if not made yet."""
    made = ready_int8(folder) if is_supported() else None
    return None if made is None else Packing(made)


def load_int8_model(folder: Path, config: Any, packing: Packing) -> Int8Model:
    """Return the model in `folder` with int8 linears, on the CPU.

    Args:
        folder: Hugging Face layout with safetensors.
        config: its transformers config.
        packing: of its int8 weights; need not be done.

    Raises:
        EngineError: `unsupported_model` when the weights do not fit the config.
    """
    expected = expected_shapes(config)
    _check_shapes(folder, expected)
    weights = {name: weight_of(name, config) for name in linear_names(config)}
    return _assemble(config, weights, packing, _floats(folder, expected, set(weights.values())))


def make_int8(
    folder: Path, config: Any, on_progress: OnProgress, is_cancelled: IsCancelled
) -> Path:
    """Return the folder of int8 weights of a model, made now where it is missing.

    Raises:
        EngineError: `disk_full`; `unsupported_model` when the weights do not fit the config.
        Cancelled: `is_cancelled` answered True.
    """
    _check_shapes(folder, expected_shapes(config))
    names = [weight_of(name, config) for name in linear_names(config)]
    return ensure_int8(folder, names, on_progress, is_cancelled)


def _floats(
    folder: Path, expected: Mapping[str, list[int]], int8: set[str]
) -> dict[str, torch.Tensor]:
    """Return what stays as it is: the table, mapped; norms and biases, read as float32."""
    table = f"{EMBEDDING}.weight"
    return {
        name: tensor if name == table else tensor.float()
        for name, tensor in read_tensors(folder)
        if name == table or (name in expected and name not in int8)
    }


def _assemble(
    config: Any,
    weights: Mapping[str, str],
    packing: Packing,
    floats: Mapping[str, torch.Tensor],
) -> Int8Model:
    def linear(name: str) -> Int8Linear:
        return Int8Linear(packing.weight(weights[name]), floats.get(f"{name}.bias"))

    def norm(name: str) -> Norm:
        return Norm(floats[f"{name}.weight"], config.rms_norm_eps)

    def layer(number: int) -> Layer:
        name = f"model.layers.{number}"
        attention = f"{name}.self_attn"
        normed = f"{attention}.q_norm.weight" in floats
        return Layer(
            Attention(
                *(linear(f"{attention}.{part}_proj") for part in "qkvo"),
                q_norm=norm(f"{attention}.q_norm") if normed else None,
                k_norm=norm(f"{attention}.k_norm") if normed else None,
                head_dim=head_size(config),
                layer_idx=number,
            ),
            Mlp(
                *(linear(f"{name}.mlp.{part}_proj") for part in ("gate", "up", "down")),
                act_fn=_activation(config.hidden_act),
            ),
            norm(f"{name}.input_layernorm"),
            norm(f"{name}.post_attention_layernorm"),
        )

    decoder = Decoder(
        Embedding(floats[f"{EMBEDDING}.weight"]),
        _rotary_embedding(config),
        tuple(layer(number) for number in range(config.num_hidden_layers)),
        norm(NORM),
    )
    head = linear(HEAD)
    linears = [head]
    for one in decoder.layers:
        attention, mlp = one.self_attn, one.mlp
        linears += [attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj]
        linears += [mlp.gate_proj, mlp.up_proj, mlp.down_proj]
    return Int8Model(
        decoder, head, config.vocab_size, sum(x.in_features * x.out_features for x in linears)
    )


def _check_shapes(folder: Path, expected: Mapping[str, list[int]]) -> None:
    """Raise EngineError unless the folder has every weight, in its shape."""
    found = dict(read_shapes(folder))
    for name, shape in expected.items():
        if found.get(name) != shape:
            has = f"has the shape {found[name]}" if name in found else "is missing"
            raise EngineError(
                "unsupported_model",
                f"The weights in {folder} do not fit its config.json: {name} {has}, "
                f"where {shape} is needed; fetch the model anew.",
            )


def _rotary_embedding(config: Any) -> RotaryEmbedding:
    rope = config.rope_parameters
    kind = rope.get("rope_type", "default")
    if kind == "default":
        size = head_size(config)
        steps = torch.arange(0, size, 2, dtype=torch.float) / size
        return RotaryEmbedding(1.0 / (rope["rope_theta"] ** steps), 1.0)
    # The stretched kinds are each a formula of its own, and transformers keeps them well.
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    frequencies, scaling = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    return RotaryEmbedding(frequencies, scaling)


def _activation(name: str) -> Callable[[torch.Tensor], torch.Tensor]:
    if name == "silu":
        return functional.silu
    from transformers.activations import ACT2FN

    return ACT2FN[name]
