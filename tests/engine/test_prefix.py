from __future__ import annotations

import pytest

from engine.kv_cache import GROWTH
from engine.prefix import PrefixCache


def fill(prefix: PrefixCache, runner, prompt: list[int]) -> int:
    """Prefill a prompt and give its cache back; return how many tokens were reused."""
    cache = prefix.take(prompt, room=len(prompt))
    reused = cache.length
    for _ in runner.prefill(cache, prompt[reused:]):
        pass
    cache.check_integrity()
    assert cache.tokens == prompt
    prefix.give_back(cache, prompt)
    return reused


@pytest.mark.parametrize(
    ("same", "reused"), [(0, 0), (1, 0), (63, 0), (64, 64), (127, 64), (128, 128), (200, 192)]
)
def test_whole_chunks_of_the_common_beginning_are_reused(tiny_qwen2, same, reused) -> None:
    runner = tiny_qwen2.runner
    assert runner.prefill_chunk == 64
    prefix = PrefixCache(runner)
    assert fill(prefix, runner, [5] * 200) == 0
    assert fill(prefix, runner, [5] * same + [6] * (210 - same)) == reused


def test_tokens_behind_the_prompt_are_never_reused(tiny_qwen2) -> None:
    runner = tiny_qwen2.runner
    prefix = PrefixCache(runner)
    cache = prefix.take([5] * 70, room=300)
    for _ in runner.prefill(cache, [5] * 200):
        pass
    prefix.give_back(cache, [5] * 70)
    assert fill(prefix, runner, [5] * 200) == 64


def test_the_memory_of_a_huge_prompt_is_let_go_with_it(tiny_qwen2) -> None:
    runner = tiny_qwen2.runner
    prefix = PrefixCache(runner)
    fill(prefix, runner, [5] * 10 * GROWTH)
    cache = prefix.take([6] * 10, room=10)
    assert cache.length == 0
    assert {layer.capacity for layer in cache.layers} == {GROWTH}


def test_a_cache_that_was_taken_and_never_given_back_is_not_used_again(tiny_qwen2) -> None:
    runner = tiny_qwen2.runner
    prefix = PrefixCache(runner)
    fill(prefix, runner, [5] * 100)
    assert prefix.take([5] * 100, room=100).length == 64
    assert prefix.take([5] * 100, room=100).length == 0
