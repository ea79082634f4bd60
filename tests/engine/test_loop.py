from __future__ import annotations

import random

import pytest

from engine.cost import even
from engine.loop import verify_loop
from engine.sampling import Sampling
from engine.window import Acceptance, WindowPolicy
from tests.engine.adversary import AdversarialDrafter

LENGTH = 120


GREEDY = Sampling()


def run(target, prompt, drafter, sampling=GREEDY, length=LENGTH, cache=None):
    """Return the first `length` tokens and the number of passes."""
    runner = target.runner
    if cache is None:
        cache = runner.new_cache(16)
    for _ in runner.prefill(cache, prompt[cache.length : -1]):
        pass
    tokens: list[int] = []
    passes = 0
    policy = policy_of(runner)
    for step in verify_loop(runner, cache, prompt[-1], drafter, sampling, length, policy):
        cache.check_integrity()
        tokens += step.tokens
        passes += 1
    assert len(tokens) == length
    # The last token was emitted and never read.
    assert cache.length == len(prompt) + length - 1
    return tokens, passes


def policy_of(runner) -> WindowPolicy:
    return WindowPolicy(even(), Acceptance(), runner.max_draft)


def prompt_of(target, seed: int) -> list[int]:
    choice = random.Random(seed)
    return [choice.randrange(3, target.tokenizer.get_vocab_size()) for _ in range(40)]


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_adversarial_drafts_never_change_a_token(tiny_target, temperature) -> None:
    vocabulary = tiny_target.tokenizer.get_vocab_size()
    sampling = Sampling(temperature, 1.0, seed=7)
    windows = 0
    for seed in range(12):
        prompt = prompt_of(tiny_target, seed)
        plain, plain_passes = run(tiny_target, prompt, None, sampling)
        assert plain_passes == LENGTH
        drafter = AdversarialDrafter(plain, vocabulary, seed)
        drafted, passes = run(tiny_target, prompt, drafter, sampling)
        assert drafted == plain
        assert passes < plain_passes
        windows += passes
    assert windows > 300


def test_a_perfect_drafter_needs_few_passes(tiny_qwen2_int8) -> None:
    prompt = prompt_of(tiny_qwen2_int8, 1)
    plain, _ = run(tiny_qwen2_int8, prompt, None)

    class Oracle(AdversarialDrafter):
        def propose(self, limit):
            from drafters.core import Draft

            return Draft(plain[self._emitted : self._emitted + limit], "oracle", 1.0)

    drafted, passes = run(tiny_qwen2_int8, prompt, Oracle(plain, 1, 0))
    assert drafted == plain
    # Nearly whole windows at once, whole ones (32 tokens) after the first.
    assert passes == 5


def test_no_window_reaches_beyond_the_limit(tiny_qwen2) -> None:
    prompt = prompt_of(tiny_qwen2, 2)
    plain, _ = run(tiny_qwen2, prompt, None)
    longest = []

    class Copy(AdversarialDrafter):
        def propose(self, limit):
            longest.append((self._emitted, limit))
            return super().propose(limit)

    for limit in (1, 2, 9, 10, 11, 40):
        assert run(tiny_qwen2, prompt, Copy(plain, 50, limit), length=limit)[0] == plain[:limit]
        assert all(emitted + asked < limit for emitted, asked in longest)
        longest.clear()


def test_the_kv_cache_after_rejections_equals_a_fresh_one(tiny_target) -> None:
    prompt = prompt_of(tiny_target, 3)
    plain, _ = run(tiny_target, prompt, None, length=200)
    cache = tiny_target.runner.new_cache(8)
    drafter = AdversarialDrafter(plain, tiny_target.tokenizer.get_vocab_size(), 5)
    run(tiny_target, prompt, drafter, length=100, cache=cache)
    # Roll back to the middle of the answer and go on without drafts from there.
    cache.rollback(cache.length - len(prompt) - 49)
    policy = policy_of(tiny_target.runner)
    loop = verify_loop(tiny_target.runner, cache, plain[49], None, Sampling(), 50, policy)
    again = [step.tokens[0] for step in loop]
    assert again == plain[50:100]
