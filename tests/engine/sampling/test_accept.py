from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import EngineError
from engine.sampling import Sampling, Verdict, accept, log_probabilities
from engine.sampling.noise import coin, gumbel_noise
from tests.engine.adversary import random_parents


@pytest.mark.parametrize(
    ("drafted", "chosen", "accepted"),
    [
        ([], [5], 0),
        ([1], [1, 9], 1),
        ([1], [2, 9], 0),
        ([1, 2, 3], [1, 2, 4, 9], 2),
        ([1, 2, 3], [7, 2, 3, 9], 0),
        ([1, 2, 3], [1, 2, 3, 9], 3),
    ],
)
def test_accepted_is_the_common_beginning(drafted, chosen, accepted) -> None:
    verdict = accept(saying(chosen), drafted, [5], Sampling())
    assert verdict.tokens == chosen[: accepted + 1]
    assert (verdict.accepted, verdict.path) == (accepted, list(range(accepted)))


def saying(tokens: list[int]) -> torch.Tensor:
    """Return rows of logits whose largest are those of `tokens`."""
    logits = torch.zeros(len(tokens), 12)
    logits[range(len(tokens)), tokens] = 1.0
    return logits


@pytest.mark.parametrize(
    ("parents", "drafted", "chosen", "path"),
    [
        ([-1, -1], [1, 2], [1, 9, 9], [0]),
        ([-1, -1], [1, 2], [2, 9, 9], [1]),
        ([-1, -1], [1, 2], [3, 9, 9], []),
        ([-1, -1, -1], [1, 2, 2], [2, 9, 9, 9], [1]),  # the first of two equal ones
        ([-1, 0, -1, 2, 3], [1, 2, 3, 4, 5], [3, 9, 9, 4, 5, 6], [2, 3, 4]),
        ([-1, 0, -1, 2, 3], [1, 2, 3, 4, 5], [3, 9, 9, 4, 6, 6], [2, 3]),
        ([-1, 0, 0, 1, 2], [1, 2, 3, 4, 5], [1, 3, 9, 5, 9, 8], [0, 2, 4]),
        ([-1, 0, 0, 1, 2], [1, 2, 3, 4, 5], [2, 3, 9, 5, 9, 8], []),
        # The row of a token that is not on the path says nothing.
        ([-1, 0, 0, 1, 2], [1, 2, 3, 4, 5], [1, 2, 4, 5, 7, 8], [0, 1, 3]),
    ],
)
def test_of_a_tree_the_path_that_the_target_says_is_accepted(
    parents, drafted, chosen, path
) -> None:
    for sampling in (Sampling(), Sampling(repetition_penalty=1.01), Sampling(1e-9, seed=3)):
        verdict = accept(saying(chosen), drafted, [11], sampling, parents)
        assert (verdict.path, verdict.accepted) == (path, len(path))
        rows = [0, *(node + 1 for node in path)]
        assert verdict.tokens == [chosen[row] for row in rows]
        assert len(verdict.margins) == len(rows)


def test_greedy_takes_the_first_largest_and_reports_the_margin() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0], [3.0, 1.0, 2.5], [9.0, 0.0, 0.0]])
    assert accept(logits, [1, 0], [5], Sampling()) == Verdict([1, 0, 0], 2, [0.0, 0.5, 9.0], [0, 1])
    assert accept(logits[1:], [2], [5], Sampling()) == Verdict([0], 0, [0.5], [])


def test_margins_are_those_before_the_temperature_and_after_the_bias() -> None:
    logits = torch.tensor([[1.0, 3.0, 0.0]])
    sampling = Sampling(0.5, seed=1, top_k=1, logit_bias=((0, 1.5),))
    assert accept(logits, [], [4], sampling).margins == [0.5]


def test_a_vocabulary_of_one_has_no_second_best() -> None:
    for sampling in (Sampling(), Sampling(1.0), Sampling(logit_bias=((0, 1.0),))):
        assert accept(torch.tensor([[1.0]]), [], [], sampling) == Verdict([0], 0, [math.inf], [])


def test_another_seed_or_position_gives_other_noise() -> None:
    noise = gumbel_noise(1, 5, 100)
    assert torch.equal(noise, gumbel_noise(1, 5, 100))
    assert not torch.equal(noise, gumbel_noise(1, 6, 100))
    assert not torch.equal(noise, gumbel_noise(2, 5, 100))
    assert torch.isfinite(noise).all()
    assert len({coin(seed, position) for seed in range(5) for position in range(5)}) == 25


@pytest.mark.parametrize("temperature", [1e-320, 1e-45, 1e-38, 1e-6])
def test_a_tiny_temperature_is_greedy(temperature) -> None:
    logits = torch.tensor([[-30.0, 40.0, 39.9], [90.0, -80.0, 0.0]])
    assert accept(logits, [1], [2], Sampling(temperature, seed=5)).tokens == [1, 0]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.0, rule="rejection")])
def test_where_nothing_is_left_to_choose_the_request_is_refused(sampling) -> None:
    from dataclasses import replace

    banned = replace(sampling, banned=frozenset({0, 1}), logit_bias=((2, -math.inf),))
    with pytest.raises(EngineError, match="No token is left"):
        accept(torch.zeros(1, 3), [], [], banned)


VOCABULARY = 10
SETTINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.6, 1.0, 1.8]),
    top_p=st.sampled_from([0.5, 0.9, 1.0]),
    seed=st.integers(0, 2**40),
    top_k=st.sampled_from([0, 1, 4]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    logit_bias=st.sampled_from([(), ((3, 2.0), (4, -5.0))]),
    banned=st.sampled_from([frozenset(), frozenset({0, 7})]),
)


class ScriptedTarget:
    """Logits that depend on all tokens before, as a model's do."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self._seed = seed
        self._dtype = dtype

    def row(self, history: list[int]) -> torch.Tensor:
        key = hash((self._seed, *history)) % 2**31
        generator = torch.Generator().manual_seed(key)
        return (3.0 * torch.randn(VOCABULARY, generator=generator)).to(self._dtype)

    def emit(self, prompt: list[int], count: int, sampling: Sampling, draft) -> list[int]:
        history = list(prompt)
        while len(history) < len(prompt) + count:
            drafted, parents = draft(history)
            before = [[]]
            for node, token in enumerate(drafted):
                before.append([*before[(parents[node] if parents else node - 1) + 1], token])
            rows = [self.row(history + path) for path in before]
            verdict = accept(torch.stack(rows), drafted, history, sampling, parents)
            assert verdict.tokens[:-1] == [drafted[node] for node in verdict.path]
            assert len(verdict.path) == verdict.accepted
            last = verdict.path[-1] + 1 if verdict.path else 0
            assert before[last] == verdict.tokens[:-1]
            history += verdict.tokens
        return history[len(prompt) : len(prompt) + count]


@settings(max_examples=150, deadline=None)
@given(SETTINGS, st.integers(0, 2**30), st.sampled_from([torch.float32, torch.bfloat16]))
def test_coupled_tokens_do_not_depend_on_the_drafts(sampling, seed, dtype) -> None:
    target = ScriptedTarget(seed, dtype)
    prompt = [1, 2, 3]
    plain = target.emit(prompt, 25, sampling, lambda history: ([], ()))
    choice = random.Random(seed)

    def draft(history: list[int]):
        place, length = len(history) - 3, choice.randint(0, 6)
        right = plain[place : place + choice.randint(0, length)]
        return right + [choice.randrange(VOCABULARY) for _ in range(length - len(right))], ()

    assert target.emit(prompt, 25, sampling, draft) == plain

    def tree(history: list[int]):
        parents = random_parents(choice, choice.randint(0, 7))
        right = [*plain[len(history) - 3 :], *[0] * 8]
        tokens, depths = [], []
        for parent in parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
            guess = choice.randrange(VOCABULARY)
            tokens.append(right[depths[-1]] if choice.random() < 0.5 else guess)
        return tokens, parents

    assert target.emit(prompt, 25, sampling, tree) == plain


LOGITS = torch.tensor([1.0, 0.0, -1.0, 2.0, 0.5, -3.0, 0.3, 1.5, -0.5, 0.0])


def distance(sampling: Sampling, draft: list[int], samples: int, parents=()) -> float:
    """Total variation from the target distribution, of the first token of many passes."""
    logits = LOGITS.expand(len(draft) + 1, -1)
    target = log_probabilities(LOGITS, sampling).exp()
    counts = torch.zeros(VOCABULARY)
    for position in range(samples):
        counts[accept(logits, draft, [0] * position, sampling, parents).tokens[0]] += 1
    assert counts[target == 0.0].sum() == 0  # the masks are obeyed
    return 0.5 * float((counts / samples - target).abs().sum())


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
@pytest.mark.parametrize(
    "settings_of", [{}, {"temperature": 1.6}, {"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.2}]
)
@pytest.mark.parametrize(
    ("draft", "parents"),
    [([], ()), ([3], ()), ([5], ()), ([7, 3], ()), ([7, 3, 3, 2], (-1, -1, -1, -1))],
    ids=["none", "likely", "rare", "two", "tree"],
)
def test_samples_come_closer_to_the_target_as_they_grow(rule, settings_of, draft, parents) -> None:
    sampling = Sampling(**{"temperature": 1.0, "seed": 11, "rule": rule, **settings_of})
    far, near = (distance(sampling, draft, samples, parents) for samples in (100, 1600))
    assert near < 0.04
    assert near < far


def test_rejection_accepts_a_drafted_token_as_often_as_the_target_says_it() -> None:
    sampling = Sampling(temperature=1.0, seed=4, rule="rejection")
    p = torch.softmax(LOGITS, dim=-1)
    for token in (3, 7, 2):
        accepted = sum(
            accept(LOGITS.expand(2, -1), [token], [0] * position, sampling).accepted
            for position in range(1500)
        )
        assert accepted / 1500 == pytest.approx(float(p[token]), abs=0.03)


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_branches_are_accepted_as_often_as_the_target_says_one_of_them(rule) -> None:
    sampling = Sampling(temperature=1.0, seed=4, rule=rule)
    p = torch.softmax(LOGITS, dim=-1)
    counts = torch.zeros(4)
    for position in range(1500):
        path = accept(
            LOGITS.expand(5, -1), [3, 7, 3, 2], [0] * position, sampling, (-1, -1, -1, -1)
        ).path
        if path:
            counts[path[0]] += 1
    assert (counts / 1500).tolist() == pytest.approx(
        [float(p[3]), float(p[7]), 0, float(p[2])], abs=0.03
    )


def test_the_second_token_of_a_pass_has_the_target_distribution_too() -> None:
    sampling = Sampling(temperature=1.0, seed=8, rule="rejection")
    counts = torch.zeros(VOCABULARY)
    for position in range(6000):
        tokens = accept(LOGITS.expand(3, -1), [3, 7], [0] * position, sampling).tokens
        if len(tokens) > 1:
            counts[tokens[1]] += 1
    assert counts.sum() > 1500
    assert 0.5 * (counts / counts.sum() - torch.softmax(LOGITS, -1)).abs().sum() < 0.04
