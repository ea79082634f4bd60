"""The parts of a decoder of the common shape, with int8 linears and float32 for the rest.

The names are those of transformers' models, so that engine/layers.py walks both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from engine.int8.linear import Int8Linear
from engine.layers import Rotation


@dataclass(frozen=True, slots=True)
class Norm:
    """Root mean square norm (Zhang and Sennrich 2019)."""

    weight: torch.Tensor
    epsilon: float

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map float32 `[..., size]`."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


@dataclass(frozen=True, slots=True)
class Attention:
    """The linears around one layer's attention; Qwen3 norms queries and keys too."""

    q_proj: Int8Linear
    k_proj: Int8Linear
    v_proj: Int8Linear
    o_proj: Int8Linear
    q_norm: Norm | None
    k_norm: Norm | None
    head_dim: int
    layer_idx: int


@dataclass(frozen=True, slots=True)
class Mlp:
    """`down(act(gate(x)) * up(x))`."""

    gate_proj: Int8Linear
    up_proj: Int8Linear
    down_proj: Int8Linear
    act_fn: Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer."""

    self_attn: Attention
    mlp: Mlp
    input_layernorm: Norm
    post_attention_layernorm: Norm


@dataclass(frozen=True, slots=True)
class Embedding:
    """A table mapped from the file, in the dtype that it has there."""

    table: torch.Tensor

    def __call__(self, ids: torch.Tensor) -> torch.Tensor:
        """Map ids `[...]` to float32 `[..., size]`."""
        return functional.embedding(ids, self.table).float()


@dataclass(frozen=True, slots=True)
class RotaryEmbedding:
    """Angles of the rotary embedding (Su et al. 2021).

    Attributes:
        frequencies: float32 `[head_dim / 2]`, radians a position.
        scaling: factor of cosines and sines.
    """

    frequencies: torch.Tensor
    scaling: float

    def __call__(self, hidden: torch.Tensor, positions: torch.Tensor) -> Rotation:
        """Return cosines and sines for positions `[1, rows]`."""
        angles = positions[..., None].float() * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos() * self.scaling, angles.sin() * self.scaling


@dataclass(frozen=True, slots=True)
class Decoder:
    """All layers, in the names that `engine.layers` walks."""

    embed_tokens: Embedding
    rotary_emb: RotaryEmbedding
    layers: tuple[Layer, ...]
    norm: Norm


@dataclass(frozen=True, slots=True)
class Int8Model:
    """The decoder and its output layer.

    Attributes:
        weight_bytes: bytes of the packed weights.
    """

    model: Decoder
    lm_head: Int8Linear
    vocabulary: int
    weight_bytes: int
