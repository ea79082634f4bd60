"""Attention of captured passes: right, and the same bits on every rung."""

from __future__ import annotations

import pytest
import torch

from engine.cuda.attention import BLOCK, added_in_pairs, static_attention
from engine.cuda.passes import Slots
from engine.cuda.views import Views


def seeded(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize(("length", "rows"), [(1, 1), (40, 3), (257, 5), (1300, 33)])
def test_attention_equals_the_plain_formula(length, rows, kv_heads) -> None:
    slots = -(-length // BLOCK) * BLOCK
    key, value = seeded(1, kv_heads, slots, 16), seeded(1, kv_heads, slots, 16) * 2
    query = seeded(1, 4, rows, 16)
    sees = torch.arange(slots) <= torch.arange(length - rows, length)[:, None]
    ours, _ = static_attention(None, query, key, value, sees)
    plain = torch.nn.functional.scaled_dot_product_attention(
        query,
        key.repeat_interleave(4 // kv_heads, 1),
        value.repeat_interleave(4 // kv_heads, 1),
        attn_mask=sees,
    )
    torch.testing.assert_close(ours, plain.transpose(1, 2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("count", range(1, 20))
def test_zeros_behind_the_parts_change_no_bit_of_their_sum(count) -> None:
    parts = seeded(3, count, 50)
    padded = torch.cat((parts, torch.zeros(3, 32 - count, 50)), dim=1)
    assert torch.equal(added_in_pairs(parts), added_in_pairs(padded))
    torch.testing.assert_close(added_in_pairs(parts), parts.sum(dim=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("branches", [0, 2])
def test_a_longer_rung_runs_the_same_products_more_often(monkeypatch, branches) -> None:
    """What a library sums in which order depends on the shapes that it is given."""
    shapes: list[tuple[torch.Size, ...]] = []
    product = torch.matmul

    def seen(a, b):
        shapes.append((a.shape, b.shape))
        return product(a, b)

    monkeypatch.setattr(torch, "matmul", seen)
    kinds = set()
    for blocks in (4, 8, 9, 16):
        slots = blocks * BLOCK
        key, value = seeded(1, 2, slots, 16), seeded(1, 2, slots, 16)
        sees = torch.arange(slots) <= torch.arange(500, 505)[:, None]
        views = None
        if branches:
            places = torch.arange(2 * BLOCK).expand(branches, -1)
            views = Views(torch.tensor([0, 1]), places, torch.zeros(5, dtype=torch.long))
        shapes.clear()
        static_attention(None, seeded(1, 4, 5, 16), key, value, sees, views=views)
        assert len(shapes) == 2 * (-(-blocks // 4) + bool(branches))
        kinds |= set(shapes)
    scores_of, values_of = {a[1] for a, _ in kinds}, {b[1] for _, b in kinds}
    assert (len(kinds), scores_of, values_of) == (2, {1, 4}, {4})


@pytest.mark.parametrize("left", [float("inf"), float("nan")])
def test_what_a_refused_row_leaves_behind_is_never_met_again(left) -> None:
    states = torch.zeros(2, 1, 1, BLOCK, 4)
    values = torch.ones(1, 1, 2, 4)
    values[0, 0, 1] = left
    slots = Slots(states, torch.tensor([0, 1]))
    key, value = slots.update(torch.ones_like(values), values, 0)
    alone = torch.arange(BLOCK)[None] <= 0
    output, _ = static_attention(None, torch.ones(1, 1, 1, 4), key, value, alone)
    assert output.flatten().tolist() == [1.0] * 4
