"""Attention of a fixed shape, over all slots of a static KV cache up to a rung of a ladder.

A captured pass cannot follow the length of its sequence: it reads every slot and masks
those that a row must not see. So that neither the rung nor the masked slots change a bit
of a row's result, the slots are taken in blocks of `BLOCK`, each a product of one shape.
A library may choose another kernel for another number of products, so they are always made
`BATCH` blocks at a time, those of a tree's views too. The blocks are added in pairs, pairs
of pairs, and so on: blocks that are masked add exact zeros, whether there are few or many
of them. (Fixed splits, as He et al. 2025, "Defeating Nondeterminism in LLM Inference".)
"""

from __future__ import annotations

from typing import Any

import torch

from engine.cuda.views import Views, gathered, put_in

BLOCK = 256
"""Slots a block; every rung of the context ladder is a multiple of it."""

BATCH = 4
"""Blocks that are multiplied at a time, as many as the shortest rung has."""


def static_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float | None = None,
    views: Views | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention in transformers' interface, in float32 whatever the model's dtype is.

    Args:
        module: not used.
        query: `[1, heads, rows, head_dim]`.
        key: `[1, kv_heads, slots, head_dim]`, finite in every slot.
        value: likewise.
        attention_mask: bool `[rows, slots]`, True where a row sees a slot; each row sees one.
        scaling: factor of the scores; 1 / sqrt(head_dim) where None.
        views: of a pass over a token tree: what some rows have in the slots instead.
        kwargs: not used.

    Returns:
        `[1, rows, heads, head_dim]` and None.
    """
    _, heads, rows, size = query.shape
    kv_heads, slots = key.shape[1], key.shape[2]
    group, blocks = heads // kv_heads, slots // BLOCK
    scale = size**-0.5 if scaling is None else scaling

    # The heads that share a key stand together, beside their rows: [kv_heads, 1, group * rows].
    q = (query[0].float() * scale).reshape(kv_heads, 1, group * rows, size)
    k = key[0].float().view(kv_heads, blocks, BLOCK, size)
    v = value[0].float().view(kv_heads, blocks, BLOCK, size)
    hidden = ~attention_mask.view(rows, blocks, BLOCK).transpose(0, 1)

    scores = products(q, k.transpose(-1, -2)).view(kv_heads, blocks, group, rows, BLOCK)
    if views is not None:
        part = products(q, gathered(k, views).transpose(-1, -2))
        put_in(scores, part.view(kv_heads, -1, group, rows, BLOCK), views)
    scores.masked_fill_(hidden[None, :, None], float("-inf"))
    weights = (scores - scores.amax(dim=(1, 4), keepdim=True)).exp_()
    sums = added_in_pairs(weights.sum(dim=-1))
    weights = weights.view(kv_heads, blocks, group * rows, BLOCK)
    output = products(weights, v)
    if views is not None:
        seen = weights.index_select(1, views.blocks).repeat(1, len(views.slots), 1, 1)
        part = products(seen, gathered(v, views)).view(kv_heads, -1, group, rows, size)
        put_in(output.view(kv_heads, blocks, group, rows, size), part, views)
    output = added_in_pairs(output).view(kv_heads * group, rows, size) / sums.view(heads, rows, 1)
    return output.transpose(0, 1)[None].to(query.dtype), None


def products(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply block by block, `BATCH` of them at a time.

    Args:
        a: `[heads, blocks, m, k]`, or one block for all, `[heads, 1, m, k]`.
        b: `[heads, blocks, k, n]`.

    Returns:
        `[heads, blocks, m, n]`.
    """
    blocks = b.shape[1]
    parts = []
    for first in range(0, blocks, BATCH):
        batch = slice(first, first + BATCH)
        left = a if a.shape[1] == 1 else _filled_up(a[:, batch])
        parts.append(torch.matmul(left, _filled_up(b[:, batch])))
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
    return whole[:, :blocks].contiguous()


def _filled_up(part: torch.Tensor) -> torch.Tensor:
    missing = BATCH - part.shape[1]
    if not missing:
        return part
    return torch.cat((part, part.new_zeros(part.shape[0], missing, *part.shape[2:])), dim=1)


def added_in_pairs(parts: torch.Tensor) -> torch.Tensor:
    """Sum dimension 1 in pairs, pairs of pairs, ...; zeros behind the parts change no bit."""
    while (count := parts.shape[1]) > 1:
        whole = parts[:, 0 : count - 1 : 2] + parts[:, 1::2]
        # A part without a partner goes on as if zeros were beside it.
        parts = torch.cat((whole, parts[:, count - 1 :]), dim=1) if count % 2 else whole
    return parts[:, 0]
