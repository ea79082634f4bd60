"""Row-invariant attention by itself, in the shapes of real models."""

from __future__ import annotations

import random

import pytest
import torch

from engine.attention import BLOCK, row_invariant_attention
from engine.tree import tree_of
from tests.engine.adversary import random_parents


@pytest.mark.parametrize(("heads", "kv_heads", "size"), [(12, 2, 128), (6, 1, 64), (4, 4, 128)])
@pytest.mark.parametrize("before", [0, 37, 250, 255, 256, 600])
def test_a_row_of_a_tree_meets_what_it_would_meet_alone(heads, kv_heads, size, before) -> None:
    choice = random.Random(before)
    generator = torch.Generator().manual_seed(before)
    for count in (2, 7, 31):
        parents = random_parents(choice, count)
        tree = tree_of(parents)
        if tree is None:
            continue
        rows = count + 1
        capacity = -(-(before + rows) // BLOCK) * BLOCK
        keys, values = torch.randn(2, 1, kv_heads, capacity, size, generator=generator)
        query = torch.randn(1, rows, heads, size, generator=generator).transpose(1, 2)
        whole = keys.clone(), values.clone()
        length = before + rows
        ours, _ = row_invariant_attention(
            None, query, keys[:, :, :length], values[:, :, :length], None, tree=tree
        )
        assert torch.equal(keys, whole[0])
        assert torch.equal(values, whole[1])
        for path in tree.paths:
            slots = [*range(before), *(before + row for row in path)]
            alone, _ = row_invariant_attention(
                None, query[:, :, list(path)], keys[:, :, slots], values[:, :, slots], None
            )
            assert torch.equal(ours[0, list(path)], alone[0])
