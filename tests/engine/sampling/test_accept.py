from __future__ import annotations

import math
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.core import EngineError
from engine.sampling import Sampling, Verdict, accept, log_probabilities
from engine.sampling.accept import accepted_length
from engine.sampling.noise import coin, gumbel_noise


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
    assert accepted_length(drafted, chosen) == accepted


def test_greedy_takes_the_first_largest_and_reports_the_margin() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0], [3.0, 1.0, 2.5], [9.0, 0.0, 0.0]])
    assert accept(logits, [1, 0], [5], Sampling()) == Verdict([1, 0, 0], 2, [0.0, 0.5, 9.0])
    assert accept(logits[1:], [2], [5], Sampling()) == Verdict([0], 0, [0.5])


def test_margins_are_those_before_the_temperature_and_after_the_bias() -> None:
    logits = torch.tensor([[1.0, 3.0, 0.0]])
    sampling = Sampling(0.5, seed=1, top_k=1, logit_bias=((0, 1.5),))
    assert accept(logits, [], [4], sampling).margins == [0.5]


def test_a_vocabulary_of_one_has_no_second_best() -> None:
    for sampling in (Sampling(), Sampling(1.0), Sampling(logit_bias=((0, 1.0),))):
        assert accept(torch.tensor([[1.0]]), [], [], sampling) == Verdict([0], 0, [math.inf])


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
            drafted = draft(history)
            rows = [self.row(history + drafted[:i]) for i in range(len(drafted) + 1)]
            verdict = accept(torch.stack(rows), drafted, history, sampling)
            assert verdict.tokens[: verdict.accepted] == drafted[: verdict.accepted]
            assert len(verdict.tokens) == verdict.accepted + 1
            history += verdict.tokens
        return history[len(prompt) : len(prompt) + count]


@settings(max_examples=150, deadline=None)
@given(SETTINGS, st.integers(0, 2**30), st.sampled_from([torch.float32, torch.bfloat16]))
def test_coupled_tokens_do_not_depend_on_the_drafts(sampling, seed, dtype) -> None:
    target = ScriptedTarget(seed, dtype)
    prompt = [1, 2, 3]
    plain = target.emit(prompt, 25, sampling, lambda history: [])
    choice = random.Random(seed)

    def draft(history: list[int]) -> list[int]:
        place, length = len(history) - 3, choice.randint(0, 6)
        right = plain[place : place + choice.randint(0, length)]
        return right + [choice.randrange(VOCABULARY) for _ in range(length - len(right))]

    assert target.emit(prompt, 25, sampling, draft) == plain


LOGITS = torch.tensor([1.0, 0.0, -1.0, 2.0, 0.5, -3.0, 0.3, 1.5, -0.5, 0.0])


def distance(sampling: Sampling, draft: list[int], samples: int) -> float:
    """Total variation from the target distribution, of the first token of many passes."""
    logits = LOGITS.expand(len(draft) + 1, -1)
    target = log_probabilities(LOGITS, sampling).exp()
    counts = torch.zeros(VOCABULARY)
    for position in range(samples):
        counts[accept(logits, draft, [0] * position, sampling).tokens[0]] += 1
    assert counts[target == 0.0].sum() == 0  # the masks are obeyed
    return 0.5 * float((counts / samples - target).abs().sum())


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
@pytest.mark.parametrize(
    "settings_of", [{}, {"temperature": 1.6}, {"top_k": 4}, {"top_p": 0.8}, {"min_p": 0.2}]
)
@pytest.mark.parametrize("draft", [[], [3], [5], [7, 3]], ids=["none", "likely", "rare", "two"])
def test_samples_come_closer_to_the_target_as_they_grow(rule, settings_of, draft) -> None:
    sampling = Sampling(**{"temperature": 1.0, "seed": 11, "rule": rule, **settings_of})
    far, near = distance(sampling, draft, 100), distance(sampling, draft, 1600)
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


def test_the_second_token_of_a_pass_has_the_target_distribution_too() -> None:
    sampling = Sampling(temperature=1.0, seed=8, rule="rejection")
    counts = torch.zeros(VOCABULARY)
    for position in range(6000):
        tokens = accept(LOGITS.expand(3, -1), [3, 7], [0] * position, sampling).tokens
        if len(tokens) > 1:
            counts[tokens[1]] += 1
    assert counts.sum() > 1500
    assert 0.5 * (counts / counts.sum() - torch.softmax(LOGITS, -1)).abs().sum() < 0.04
