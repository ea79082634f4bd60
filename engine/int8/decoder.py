"""One layer of a decoder with int8 linears; a row is rounded once for all that read it."""

from __future__ import annotations

import torch

from engine.attention import row_invariant_attention
from engine.int8.linear import scaled_rows
from engine.int8.modules import Attention, Layer
from engine.kv_cache import KVCache
from engine.layers import Rotation
from engine.tree import Tree


def run_layer(
    layer: Layer,
    hidden: torch.Tensor,
    rotation: Rotation,
    cache: KVCache,
    tree: Tree | None = None,
) -> torch.Tensor:
    """Map hidden states `[1, rows, hidden_size]` through one layer; see `layers.RunLayer`."""
    hidden = hidden + _attention(
        layer.self_attn, layer.input_layernorm(hidden), rotation, cache, tree
    )
    mlp = layer.mlp
    rows = scaled_rows(layer.post_attention_layernorm(hidden))
    inner = mlp.act_fn(mlp.gate_proj.of(rows)).mul_(mlp.up_proj.of(rows))
    return hidden + mlp.down_proj(inner)


def _attention(
    attention: Attention, x: torch.Tensor, rotation: Rotation, cache: KVCache, tree: Tree | None
) -> torch.Tensor:
    rows = scaled_rows(x)
    by_head = (*x.shape[:-1], -1, attention.head_dim)
    query, key, value = (
        linear.of(rows).view(by_head)
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    if attention.q_norm is not None and attention.k_norm is not None:
        query, key = attention.q_norm(query), attention.k_norm(key)
    query, key, value = (states.transpose(1, 2) for states in (query, key, value))
    query, key = _rotated(query, rotation), _rotated(key, rotation)
    keys, values = cache.update(key, value, attention.layer_idx)
    output, _ = row_invariant_attention(None, query, keys, values, None, tree=tree)
    return attention.o_proj(output.flatten(2))


def _rotated(x: torch.Tensor, rotation: Rotation) -> torch.Tensor:
    """Turn each pair (first half, second half) of a head by its angle (Su et al. 2021)."""
    cos, sin = rotation
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return torch.addcmul(x * cos[:, None], turned, sin[:, None])
