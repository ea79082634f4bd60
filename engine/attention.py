"""Attention whose result for a row does not depend on the other rows of the pass.

Keys and values are read in blocks of `BLOCK` positions on a fixed grid. For each query row
and each block the same small matrix product of the same shape runs, the blocks are added
in order, and what a row must not see weighs exactly zero. So a row meets the same
operations in the same order whether it stands alone or among sixteen. (Fixed splits are
the known cure for batch-dependent attention, He et al. 2025, "Defeating Nondeterminism in
LLM Inference".)
"""

from __future__ import annotations

from typing import Any

import torch

BLOCK = 256
"""Positions a block; the KV cache's capacity is a multiple of it (`kv_cache.GROWTH`)."""


def row_invariant_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of the last rows of a sequence, in transformers' interface.

    Args:
        module: not used.
        query: `[1, heads, rows, head_dim]`.
        key: `[1, kv_heads, length, head_dim]`, a view into a buffer whose capacity is a
            multiple of `BLOCK` and whose unfilled part holds finite numbers.
        value: likewise.
        attention_mask: not used; row i sees the first `length - rows + i + 1` positions.
        scaling: factor of the scores; 1 / sqrt(head_dim) where None.
        kwargs: not used.

    Returns:
        `[1, rows, heads, head_dim]` and None.
    """
    asked = query.shape[2]
    if asked == 1:
        # A batch of one product takes another way through the library than a batch of
        # two, with other splits; so a row alone is computed beside a copy of itself.
        query = query.expand(-1, -1, 2, -1)
    _, heads, rows, size = query.shape
    kv_heads, length = key.shape[1], key.shape[2]
    group = heads // kv_heads
    scale = size**-0.5 if scaling is None else scaling
    blocks = -(-length // BLOCK)
    keys, values = _whole_blocks(key[0], blocks), _whole_blocks(value[0], blocks)

    # The heads that share a key stand together: [kv_heads, rows, group, size].
    # In float32 whatever the model's dtype is, as transformers' own softmax.
    q = (query[0].float() * scale).view(kv_heads, group, rows, size).transpose(1, 2).contiguous()
    scores = q.new_empty(kv_heads, rows, group, blocks * BLOCK)
    for head, block in _grid(kv_heads, blocks):
        part = _for_each_row(keys[head], block, rows).transpose(1, 2)
        scores[head, :, :, block * BLOCK : (block + 1) * BLOCK] = torch.bmm(q[head], part)

    seen = torch.arange(length - asked, length, device=q.device).expand(rows).view(rows, 1, 1)
    hidden = torch.arange(blocks * BLOCK, device=q.device) > seen
    weights = torch.softmax(scores.masked_fill_(hidden, float("-inf")), dim=-1)

    output = q.new_zeros(kv_heads, rows, group, size)
    for head, block in _grid(kv_heads, blocks):
        part = _for_each_row(values[head], block, rows)
        output[head] += torch.bmm(weights[head, :, :, block * BLOCK : (block + 1) * BLOCK], part)
    output = output.transpose(0, 1).reshape(1, rows, heads, size)[:, :asked]
    return output.to(query.dtype), None


def _grid(kv_heads: int, blocks: int) -> list[tuple[int, int]]:
    return [(head, block) for head in range(kv_heads) for block in range(blocks)]


def _whole_blocks(states: torch.Tensor, blocks: int) -> torch.Tensor:
    """Return `[kv_heads, blocks * BLOCK, size]`, the buffer behind `states` up to whole blocks."""
    kv_heads, length, size = states.shape
    if blocks * BLOCK == length:
        return states
    if states.stride(0) >= blocks * BLOCK * size and states.stride(1) == size:
        return states.as_strided((kv_heads, blocks * BLOCK, size), states.stride())
    # Not one of our buffers: copy into one.
    padded = states.new_zeros(kv_heads, blocks * BLOCK, size)
    padded[:, :length] = states
    return padded


def _for_each_row(states: torch.Tensor, block: int, rows: int) -> torch.Tensor:
    """Return one block `[rows, BLOCK, size]` in float32, the same memory for each row."""
    return states[block * BLOCK : (block + 1) * BLOCK].float().expand(rows, -1, -1)
