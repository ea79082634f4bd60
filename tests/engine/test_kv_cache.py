from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache

from engine.kv_cache import KVCache, common_prefix


def test_passes_over_it_give_the_logits_of_transformers_own_cache(tiny_qwen2) -> None:
    runner = tiny_qwen2.runner
    tokens = list(range(5, 60))
    cache = runner.new_cache(4)
    ours = torch.cat([runner.verify(cache, tokens[:30]), runner.verify(cache, tokens[30:])])
    model = runner._model
    with torch.inference_mode():
        theirs = model(
            input_ids=torch.tensor([tokens]),
            use_cache=True,
            **{runner._cache_argument: DynamicCache()},
        ).logits[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_rolling_back_moves_no_memory(tiny_qwen2) -> None:
    cache = tiny_qwen2.runner.new_cache(64)
    tiny_qwen2.runner.verify(cache, list(range(40)))
    before = [(layer.keys.data_ptr(), layer.keys.clone()) for layer in cache.layers]
    cache.rollback(15)
    cache.check_integrity()
    assert cache.length == 25
    for layer, (pointer, keys) in zip(cache.layers, before, strict=True):
        assert layer.keys.data_ptr() == pointer
        assert torch.equal(layer.keys, keys)


def test_it_grows_and_keeps_what_it_holds(tiny_qwen2) -> None:
    runner = tiny_qwen2.runner
    small, large = runner.new_cache(1), runner.new_cache(2000)
    for start in range(0, 1200, 100):
        tokens = [(start + i) % 300 for i in range(100)]
        grown, roomy = runner.verify(small, tokens), runner.verify(large, tokens)
    assert torch.equal(grown, roomy)
    assert small.layers[0].capacity < 2000


@pytest.mark.parametrize("count", [-1, 11])
def test_rolling_back_more_than_it_holds_is_refused(count) -> None:
    cache = KVCache(layers=1, capacity=16)
    cache.tokens.extend(range(10))
    with pytest.raises(ValueError, match="roll back"):
        cache.rollback(count)
    assert cache.length == 10


@pytest.mark.parametrize(
    ("a", "b", "count"),
    [([], [], 0), ([1], [1, 2], 1), ([1, 2], [1, 3], 1), ([2], [1], 0), ([1, 2], [1, 2], 2)],
)
def test_common_prefix(a, b, count) -> None:
    assert common_prefix(a, b) == count
