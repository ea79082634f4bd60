from __future__ import annotations

import pytest
import torch
from transformers import DynamicCache

from engine.kv_cache import GROWTH, KVCache, SlotLayer, common_prefix
from tests.engine.memory import failing_allocations

TOKEN_BYTES = 2 * 2 * 2 * 4
"""Of `a_cache`: two layers, keys and values, two numbers of float32."""


def a_cache(length: int, capacity: int = 1, **attributes) -> KVCache:
    """Return a cache of two layers whose row i holds i."""
    cache = KVCache(2, capacity, **attributes)
    append(cache, length)
    return cache


def append(cache: KVCache, count: int) -> None:
    rows = torch.arange(cache.length, cache.length + count).float()
    rows = rows[None, None, :, None].expand(1, 1, count, 2)
    for index in range(2):
        cache.update(rows + index, -rows - index, index)
    cache.tokens.extend(range(cache.length, cache.length + count))


def assert_holds(cache: KVCache, length: int) -> None:
    cache.check_integrity()
    assert cache.tokens == list(range(length))
    expected = torch.arange(length).float()[:, None].expand(length, 2)
    for index, layer in enumerate(cache.layers):
        assert torch.equal(layer.keys[0, 0, :length], expected + index)
        assert torch.equal(layer.values[0, 0, :length], -expected - index)


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


@pytest.mark.parametrize("start", [0, 5, 250])
@pytest.mark.parametrize(
    "path",
    [[], [0], [0, 1, 2], [0, 1, 2, 3, 4, 5, 6, 7], [0, 3], [0, 1, 5, 6], [2, 3, 4, 5, 6, 7], [7]],
)
def test_of_what_was_appended_one_path_is_kept(start, path) -> None:
    cache = a_cache(start + 8)
    pointers = [layer.keys.data_ptr() for layer in cache.layers]
    cache.keep(path, start)
    cache.check_integrity()
    kept = [*range(start), *(start + row for row in path)]
    assert cache.tokens == kept
    expected = torch.tensor(kept).float()[:, None].expand(len(kept), 2)
    for index, layer in enumerate(cache.layers):
        assert torch.equal(layer.keys[0, 0, : len(kept)], expected + index)
        assert torch.equal(layer.values[0, 0, : len(kept)], -expected - index)
    assert [layer.keys.data_ptr() for layer in cache.layers] == pointers


def test_keeping_a_beginning_moves_no_memory(monkeypatch) -> None:
    cache = a_cache(20)
    monkeypatch.setattr(SlotLayer, "move", lambda *args: pytest.fail("moved"))
    cache.keep([0, 1, 2], 12)
    assert_holds(cache, 15)


@pytest.mark.parametrize("path", [[1, 1], [2, 1], [-1, 0], [0, 4]])
def test_a_path_that_was_not_appended_in_that_order_is_refused(path) -> None:
    cache = a_cache(10)
    with pytest.raises(ValueError, match="keep"):
        cache.keep(path, 6)
    assert_holds(cache, 10)


def test_it_grows_and_keeps_what_it_holds(tiny_qwen2) -> None:
    runner = tiny_qwen2.runner
    small, large = runner.new_cache(1), runner.new_cache(2000)
    for start in range(0, 1200, 100):
        tokens = [(start + i) % 300 for i in range(100)]
        grown, roomy = runner.verify(small, tokens), runner.verify(large, tokens)
    assert torch.equal(grown, roomy)
    assert small.layers[0].capacity < 2000


@pytest.mark.parametrize(
    ("length", "capacity", "allocated"),
    [(0, 5000, 0), (1, 1, 256), (1, 1000, 1024), (257, 1, 512), (3000, 1, 3072)],
)
def test_bytes_are_those_of_the_buffers(length, capacity, allocated) -> None:
    cache = KVCache(2, capacity)
    if length:
        append(cache, length)
    assert cache.bytes == allocated * TOKEN_BYTES


@pytest.mark.parametrize(("wanted", "capacity"), [(1, 1024), (1024, 1024), (1025, 1280)])
def test_reserving_allocates_what_is_asked_for_and_no_more(wanted, capacity) -> None:
    cache = a_cache(1000)
    cache.reserve(wanted)
    assert cache.bytes == capacity * TOKEN_BYTES
    assert_holds(cache, 1000)


def test_while_decoding_it_grows_by_a_quarter_and_never_by_less_than_a_step() -> None:
    cache = a_cache(1)
    capacities = [cache.layers[0].capacity]
    for _ in range(3000):
        append(cache, 1)
        if cache.layers[0].capacity != capacities[-1]:
            capacities.append(cache.layers[0].capacity)
    assert capacities == [256, 512, 768, 1024, 1280, 1792, 2304, 3072]
    assert_holds(cache, 3001)


def test_trimming_lets_go_of_what_is_not_filled() -> None:
    cache = a_cache(300, 5000)
    cache.trim()
    assert cache.bytes == 2 * GROWTH * TOKEN_BYTES
    assert_holds(cache, 300)
    append(cache, 700)
    assert_holds(cache, 1000)


@pytest.mark.parametrize(
    ("length", "capacity", "allocated"),
    [(0, 1, 256), (10, 0, 256), (300, 10, 512), (300, 600, 768)],
)
def test_a_copied_prefix_is_a_cache_of_its_own(length, capacity, allocated) -> None:
    cache = a_cache(300, exact=False, grid=7)
    copy = cache.copy_prefix(length, capacity)
    assert (copy.exact, copy.grid) == (False, 7)
    assert copy.bytes == allocated * TOKEN_BYTES
    assert_holds(copy, length)
    append(copy, 500)
    for layer in copy.layers:
        layer.keys.zero_()
    append(cache, 500)
    assert_holds(cache, 800)


def test_a_copy_of_a_cache_without_buffers_has_none() -> None:
    copy = KVCache(2, 1000).copy_prefix(0, 300)
    assert copy.bytes == 0
    append(copy, 300)
    assert copy.bytes == 512 * TOKEN_BYTES


@pytest.mark.parametrize("length", [-1, 11])
def test_copying_more_than_it_holds_is_refused(length) -> None:
    with pytest.raises(ValueError, match="copy"):
        a_cache(10).copy_prefix(length, 20)


@pytest.mark.parametrize("allowed", range(4))
@pytest.mark.parametrize("length", [0, 200])
@pytest.mark.parametrize("way", ["append", "reserve", "trim", "copy"])
def test_an_allocation_that_fails_leaves_it_usable(monkeypatch, allowed, length, way) -> None:
    cache = KVCache(2, 800 if way == "trim" else 1)
    if length:
        append(cache, length)
    elif way != "append":
        return  # nothing is allocated before the first pass
    ways = {
        "append": lambda: append(cache, 300),
        "reserve": lambda: cache.reserve(5000),
        "trim": cache.trim,
        "copy": lambda: cache.copy_prefix(100, 100),
    }
    with failing_allocations(monkeypatch, allowed), pytest.raises(RuntimeError, match="memory"):
        ways[way]()
    cache.rollback(0)
    if length:
        assert_holds(cache, length)
    append(cache, 400)
    assert_holds(cache, length + 400)


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


@pytest.mark.parametrize("length", [1, 1023, 1024, 1025, 3000])
def test_a_common_prefix_of_many_blocks_ends_at_the_first_difference(length) -> None:
    tokens = [1000 + i for i in range(length)]
    assert common_prefix(tokens, list(tokens)) == length
    assert common_prefix(tokens, [*tokens, 1]) == length
    assert common_prefix([*tokens, 1, 2, 3], [*tokens, 2, 2, 3]) == length
    for place in {0, length // 2, length - 1}:
        assert common_prefix(tokens, [*tokens[:place], 0, *tokens[place + 1 :]]) == place
