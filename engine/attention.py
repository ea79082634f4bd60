"""Attention whose result for a row does not depend on the other rows of the pass.

Keys and values are read in blocks of `BLOCK` positions on a fixed grid. For each query row
and each block the same small matrix product of the same shape runs, the blocks are added
in order, and what a row must not see weighs exactly zero. So a row meets the same
operations in the same order whether it stands alone or among sixteen. (Fixed splits are
the known cure for batch-dependent attention, He et al. 2025, "Defeating Nondeterminism in
LLM Inference".)

In a pass over a token tree (engine/tree.py) a side branch's keys lie in other slots than
plain decoding would have put them, and sums over them would run in another order. So before
the rows of a branch look at the last blocks, the few rows of its path are moved to where
plain decoding would have them, and afterwards the slots get back what they held.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from engine.tree import Tree

BLOCK = 256
"""Positions a block; the KV cache's capacity is a multiple of it (`kv_cache.GROWTH`)."""


def row_invariant_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    tree: Tree | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Causal attention of the last rows of a sequence, in transformers' interface.

    Args:
        module: not used.
        query: `[1, heads, rows, head_dim]`.
        key: `[1, kv_heads, length, head_dim]`, a view into a buffer whose capacity is a
            multiple of `BLOCK` and whose unfilled part holds finite numbers.
        value: likewise.
        attention_mask: not used; row i sees the first `length - rows + i + 1` positions
            where `tree` says nothing else.
        scaling: factor of the scores; 1 / sqrt(head_dim) where None.
        tree: the shape of the pass, where it is not a chain: a row at depth d then sees
            what is before the pass and the d rows that it follows.
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
    before = length - asked
    order = None if tree is None or tree.is_in_order else list(tree.order)
    if order is not None:
        query = query[:, :, order]

    # The heads that share a key stand together: [kv_heads, rows, group, size].
    # In float32 whatever the model's dtype is, as transformers' own softmax.
    q = (query[0].float() * scale).view(kv_heads, group, rows, size).transpose(1, 2).contiguous()
    scores = q.new_empty(kv_heads, rows, group, blocks * BLOCK)
    on_cpu = q.device.type == "cpu"
    parts = _parts(rows, before, blocks, tree)
    for part in _each_in_its_slots(parts, keys, before, length):
        for some, columns in _grid(kv_heads, part, on_cpu):
            states = keys[some, columns].float().transpose(1, 2)
            scores[some, part.rows, :, columns] = _products(q[some], part.rows, states)

    seen = _last_seen(tree, before, asked, q.device).expand(rows).view(rows, 1, 1)
    hidden = torch.arange(blocks * BLOCK, device=q.device) > seen
    weights = torch.softmax(scores.masked_fill_(hidden, float("-inf")), dim=-1)

    output = q.new_zeros(kv_heads, rows, group, size)
    for part in _each_in_its_slots(parts, values, before, length):
        for some, columns in _grid(kv_heads, part, on_cpu):
            states = values[some, columns].float()
            output[some, part.rows] += _products(weights[some, :, :, columns], part.rows, states)
    output = output.transpose(0, 1).reshape(1, rows, heads, size)[:, :asked]
    if order is not None:
        output = torch.empty_like(output).index_copy_(
            1, torch.tensor(order, device=q.device), output
        )
    return output.to(query.dtype), None


class _Part(NamedTuple):
    """Rows that meet some blocks together.

    Attributes:
        rows: of the queries.
        blocks: of the keys and values.
        path: the rows of the pass that belong into the slots behind what was before it, or
            empty where those there are the right ones.
    """

    rows: slice
    blocks: range
    path: tuple[int, ...] = ()


def _parts(rows: int, before: int, blocks: int, tree: Tree | None) -> list[_Part]:
    if tree is None:
        return [_Part(slice(0, rows), range(blocks))]
    # Row 0 is in its slot whatever the tree is.
    common = min((before + 1) // BLOCK, blocks)
    last = range(common, blocks)
    return [
        _Part(slice(0, rows), range(common)),
        _Part(slice(0, tree.main), last),
        *(_Part(slice(view.start, view.stop), last, view.path) for view in tree.views),
    ]


def _each_in_its_slots(
    parts: list[_Part], states: torch.Tensor, before: int, length: int
) -> Iterator[_Part]:
    """Yield each part while the rows of its path lie where plain decoding would have them.

    A caller that stops half way leaves the rows of the pass in disorder, as any pass does
    that fails: nobody may use them.
    """
    lying = None
    for part in parts:
        if part.path:
            if lying is None:
                lying = states[:, before:length].clone()
            states[:, before : before + len(part.path)] = lying.index_select(
                1, _index(part.path, states.device)
            )
        yield part
    if lying is not None:
        states[:, before:length] = lying


def _products(a: torch.Tensor, rows: slice, states: torch.Tensor) -> torch.Tensor:
    """Multiply `a[head, row]`, `[m, k]`, with `states[head]`, `[k, n]`, for each of some rows.

    Every product is one of a batch of at least two; see above.
    """
    start, stop = rows.start, rows.stop
    if len(states) > 1:
        assert stop - start == 1
        return torch.bmm(a[:, start], states)[:, None]
    if a.device.type != "cpu":
        start, stop = 0, a.shape[1]  # elsewhere the way taken may depend on the batch's size
    elif stop - start == 1:
        start, stop = (start - 1, stop) if start else (0, 2)
    # The same memory for each row.
    products = torch.bmm(a[0, start:stop], states.expand(stop - start, -1, -1))
    return products[None, rows.start - start : rows.stop - start]


def _last_seen(tree: Tree | None, before: int, asked: int, device: torch.device) -> torch.Tensor:
    """Return for each row of the queries the last position that it sees: its own."""
    if tree is None:
        return torch.arange(before, before + asked, device=device)
    return torch.tensor([before + tree.depths[row] for row in tree.order], device=device)


def _grid(kv_heads: int, part: _Part, on_cpu: bool) -> list[tuple[slice, slice]]:
    """Return which heads and which positions to multiply at once."""
    single = part.rows.stop - part.rows.start == 1 and kv_heads > 1 and on_cpu
    heads = [slice(0, kv_heads)] if single else [slice(i, i + 1) for i in range(kv_heads)]
    blocks = [slice(block * BLOCK, (block + 1) * BLOCK) for block in part.blocks]
    return [(head, block) for head in heads for block in blocks]


@lru_cache(maxsize=64)
def _index(path: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.tensor(path, device=device)


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
