"""One layer of a decoder with int8 linears.

The modules are those of the transformers model; the way through them is our own, so that
a row is rounded once for all the linears that read it.
"""

from __future__ import annotations

from typing import Any

import torch

from engine.attention import row_invariant_attention
from engine.int8.linear import scaled_rows
from engine.kv_cache import KVCache
from engine.layers import Rotation


def run_layer(layer: Any, hidden: torch.Tensor, rotation: Rotation, cache: KVCache) -> torch.Tensor:
    """Map hidden states `[1, rows, hidden_size]` through one layer; see `layers.RunLayer`."""
    hidden = hidden + _attention(
        layer.self_attn, norm(layer.input_layernorm, hidden), rotation, cache
    )
    mlp = layer.mlp
    rows = scaled_rows(norm(layer.post_attention_layernorm, hidden))
    inner = mlp.act_fn(mlp.gate_proj.of(rows)).mul_(mlp.up_proj.of(rows))
    return hidden + mlp.down_proj(inner)


def norm(module: Any, x: torch.Tensor) -> torch.Tensor:
    """Root mean square norm (Zhang and Sennrich 2019) with the module's weight."""
    weight = module.weight
    return torch.nn.functional.rms_norm(x, weight.shape, weight, module.variance_epsilon)


def _attention(attention: Any, x: torch.Tensor, rotation: Rotation, cache: KVCache) -> torch.Tensor:
    rows = scaled_rows(x)
    by_head = (*x.shape[:-1], -1, attention.head_dim)
    query, key, value = (
        linear.of(rows).view(by_head)
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    if hasattr(attention, "q_norm"):  # Qwen3
        query, key = norm(attention.q_norm, query), norm(attention.k_norm, key)
    query, key, value = (states.transpose(1, 2) for states in (query, key, value))
    query, key = _rotated(query, rotation), _rotated(key, rotation)
    keys, values = cache.update(key, value, attention.layer_idx)
    output, _ = row_invariant_attention(attention, query, keys, values, None, attention.scaling)
    return attention.o_proj(output.flatten(2))


def _rotated(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Turn each pair (first half, second half) of a head by its angle (Su et al. 2021)."""
    cos, sin = rotation
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return torch.addcmul(x * cos[:, None], turned, sin[:, None])
