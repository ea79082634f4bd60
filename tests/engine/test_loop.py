from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from drafters.core import NO_DRAFT, Draft
from engine.cost import even
from engine.loop import verify_loop
from engine.sampling import Sampling
from engine.window import Acceptance, WindowPolicy
from tests.engine.adversary import AdversarialDrafter, AdversarialTrees, Everything

LENGTH = 120


GREEDY = Sampling()


def run(
    target, prompt, drafter, sampling=GREEDY, length=LENGTH, cache=None, policy_type=WindowPolicy
):
    """Return the first `length` tokens and the number of passes."""
    runner = target.runner
    if cache is None:
        cache = runner.new_cache(16)
    for _ in runner.prefill(cache, prompt[cache.length : -1]):
        pass
    tokens: list[int] = []
    passes = 0
    policy = policy_of(runner, policy_type)
    for step in verify_loop(runner, cache, prompt[-1], drafter, sampling, length, policy):
        cache.check_integrity()
        tokens += step.tokens
        passes += 1
    assert len(tokens) == length
    # The last token was emitted and never read.
    assert cache.length == len(prompt) + length - 1
    return tokens, passes


def policy_of(runner, policy_type=WindowPolicy) -> WindowPolicy:
    return policy_type(even(), Acceptance(), runner.max_draft)


def prompt_of(target, seed: int, length: int = 40) -> list[int]:
    choice = random.Random(seed)
    return [choice.randrange(3, target.tokenizer.get_vocab_size()) for _ in range(length)]


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


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_adversarial_trees_never_change_a_token(tiny_target, temperature) -> None:
    vocabulary = tiny_target.tokenizer.get_vocab_size()
    sampling = Sampling(temperature, 1.0, seed=7, repetition_penalty=1.0 + temperature / 4)
    passes = on_branches = 0
    # The answers cross the border of a block of attention, at 256, at other places.
    for seed, length in enumerate((40, 215, 240)):
        prompt = prompt_of(tiny_target, seed, length)
        plain, _ = run(tiny_target, prompt, None, sampling, 60)
        for policy_type in (Everything, WindowPolicy):
            drafter = AdversarialTrees(plain, vocabulary, seed)
            counter = CountingRunner(tiny_target.runner)
            target = SimpleNamespace(runner=counter)
            drafted, count = run(target, prompt, drafter, sampling, 60, None, policy_type)
            assert drafted == plain
            passes += count
            on_branches += counter.trees_verified
    assert passes > 80
    assert on_branches > 30


class CountingRunner:
    """Hands everything to a runner and counts the trees."""

    def __init__(self, runner) -> None:
        self._runner = runner
        self.trees_verified = 0

    def __getattr__(self, name):
        return getattr(self._runner, name)

    def verify(self, cache, tokens, parents=()):
        self.trees_verified += bool(parents)
        return self._runner.verify(cache, tokens, parents)


@pytest.mark.parametrize("length", [1, 2, 5, 30])
def test_no_row_of_a_tree_reaches_beyond_the_window_of_the_model(tiny_qwen2_int8, length) -> None:
    prompt = prompt_of(tiny_qwen2_int8, 1, 60)
    plain, _ = run(tiny_qwen2_int8, prompt, None, length=length)
    last = []

    class Watching(CountingRunner):
        def verify(self, cache, tokens, parents=()):
            last.append(cache.length + len(tokens))
            return super().verify(cache, tokens, parents)

    target = SimpleNamespace(runner=Watching(tiny_qwen2_int8.runner))
    for seed in range(5):
        drafter = AdversarialTrees(plain, 300, seed)
        assert run(target, prompt, drafter, length=length, policy_type=Everything)[0] == plain
    assert max(last) < len(prompt) + length


def test_a_runner_without_trees_is_given_the_main_chain(tiny_qwen2) -> None:
    prompt = prompt_of(tiny_qwen2, 4)
    plain, _ = run(tiny_qwen2, prompt, None)
    runner = CountingRunner(tiny_qwen2.runner)
    runner.trees = False
    drafter = AdversarialTrees(plain, 300, 1)
    target = SimpleNamespace(runner=runner)
    assert run(target, prompt, drafter, policy_type=Everything)[0] == plain
    assert runner.trees_verified == 0


def test_a_side_branch_is_told_apart_from_the_main_chain(tiny_qwen2_int8) -> None:
    prompt = prompt_of(tiny_qwen2_int8, 5)
    plain, _ = run(tiny_qwen2_int8, prompt, None, length=6)
    wrong = (plain[1] + 1) % 300
    tree = Draft([plain[0], wrong, wrong, plain[1], plain[2]], "source", 0.9, 7, (-1, 0, 1, 0, 3))

    class OneTree(AdversarialTrees):
        def propose(self, limit):
            return tree if self._emitted == 0 else NO_DRAFT

    runner = tiny_qwen2_int8.runner
    cache = runner.new_cache(16)
    for _ in runner.prefill(cache, prompt[:-1]):
        pass
    policy = policy_of(runner, Everything)
    step = next(verify_loop(runner, cache, prompt[-1], OneTree(plain, 300, 0), GREEDY, 6, policy))
    assert (step.tokens, step.path, step.verified) == (plain[:4], [0, 3, 4], [0, 1, 2, 3, 4])
    assert cache.tokens == [*prompt, *plain[:3]]


def test_a_perfect_drafter_needs_few_passes(tiny_qwen2_int8) -> None:
    prompt = prompt_of(tiny_qwen2_int8, 1)
    plain, _ = run(tiny_qwen2_int8, prompt, None)

    class Oracle(AdversarialDrafter):
        def propose(self, limit):
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
    trees = AdversarialTrees(plain, tiny_target.tokenizer.get_vocab_size(), 6)
    trees._emitted = 100
    read = [*prompt, *plain[:100]]
    run(tiny_target, read, trees, length=100, cache=cache, policy_type=Everything)
    # Roll back to the middle of the answer and go on without drafts from there.
    cache.rollback(cache.length - len(prompt) - 49)
    policy = policy_of(tiny_target.runner)
    loop = verify_loop(tiny_target.runner, cache, plain[49], None, Sampling(), 50, policy)
    again = [step.tokens[0] for step in loop]
    assert again == plain[50:100]
