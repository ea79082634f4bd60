from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.core import EngineError, GenerationRequest, Message
from engine.sampling import Sampling, log_probabilities, processed
from engine.sampling.masks import keep_min_p, keep_top_k, keep_top_p, penalised
from engine.sampling.settings import sampling_of

NOTHING = torch.tensor([], dtype=torch.long)
P = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()


def kept(scores: torch.Tensor) -> list[int]:
    return torch.isfinite(scores).nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("k", "left"), [(0, [0, 1, 2, 3]), (1, [0]), (2, [0, 1]), (3, [0, 1, 2]), (9, [0, 1, 2, 3])]
)
def test_top_k_keeps_the_k_most_probable(k, left) -> None:
    assert kept(keep_top_k(P, k)) == left


@pytest.mark.parametrize(
    ("p", "left"),
    [(0.01, [0]), (0.49, [0]), (0.51, [0, 1]), (0.81, [0, 1, 2]), (1.0, [0, 1, 2, 3])],
)
def test_top_p_keeps_the_smallest_set_that_reaches_it(p, left) -> None:
    assert kept(keep_top_p(P, p)) == left
    # The order of the vocabulary does not matter.
    turned = torch.tensor([2, 0, 3, 1])
    assert sorted(turned[kept(keep_top_p(P[turned], p))].tolist()) == left


@given(
    st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_top_p_keeps_what_a_sort_of_everything_would(scores, p) -> None:
    row = torch.tensor(scores)
    shares = torch.softmax(row, dim=-1)
    left = kept(keep_top_p(row, p))
    before = 0.0
    for token in shares.argsort(descending=True, stable=True).tolist():
        if abs(before - p) > 1e-5:  # nearer than that, rounding decides
            equals = [t for t in left if shares[t] == shares[token]]
            assert (token in left) == (before < p or not before) or equals
        before += float(shares[token])
    assert shares[left].sum() >= min(p, 1.0) - 1e-5


@pytest.mark.parametrize(
    ("share", "left"), [(0.0, [0, 1, 2, 3]), (0.2, [0, 1, 2]), (0.5, [0, 1]), (0.99, [0])]
)
def test_min_p_keeps_what_is_not_far_below_the_best(share, left) -> None:
    assert kept(keep_min_p(P, share)) == left


def test_what_is_kept_adds_up_to_one() -> None:
    sampling = Sampling(temperature=0.7, top_k=3, top_p=0.9, min_p=0.1)
    p = log_probabilities(torch.stack([P, P.flip(0)]), sampling).exp()
    torch.testing.assert_close(p.sum(dim=-1), torch.ones(2))
    assert torch.equal(p[0], p[1].flip(0))


def test_later_masks_see_what_earlier_ones_left() -> None:
    # Of the two that top-k leaves, the first has 0.625: enough for top-p alone.
    assert kept(log_probabilities(P, Sampling(temperature=1.0, top_k=2, top_p=0.6))) == [0]
    assert kept(log_probabilities(P, Sampling(temperature=1.0, top_p=0.6))) == [0, 1]


def test_the_temperature_comes_before_the_masks() -> None:
    # At half the temperature p becomes p^2: 0.68, 0.25, 0.06, 0.007.
    assert kept(log_probabilities(P, Sampling(temperature=0.5, top_p=0.65))) == [0]


def test_the_penalty_divides_what_is_positive_and_multiplies_the_rest() -> None:
    row = torch.tensor([2.0, -2.0, 4.0, -4.0])
    assert penalised(row, torch.tensor([0, 1, 77]), 2.0).tolist() == [1.0, -4.0, 4.0, -4.0]
    assert row.tolist() == [2.0, -2.0, 4.0, -4.0]


def test_bias_is_added_and_bans_are_final() -> None:
    row = torch.tensor([0.0, 1.0, 2.0])
    sampling = Sampling(logit_bias=((0, 5.0), (2, 100.0), (0, 0.5)), banned=frozenset({2}))
    assert processed(row, NOTHING, sampling).tolist() == [5.5, 1.0, -math.inf]


def test_the_order_is_penalty_bias_ban() -> None:
    sampling = Sampling(repetition_penalty=2.0, logit_bias=((0, 1.0),))
    assert processed(torch.tensor([4.0, 0.0]), torch.tensor([0]), sampling).tolist() == [3.0, 0.0]


def request(**more) -> GenerationRequest:
    return GenerationRequest("m", (Message("user", "x"),), **more)


@pytest.mark.parametrize(
    "more",
    [
        {"logit_bias": ((10, 1.0),)},
        {"logit_bias": ((-1, 1.0),)},
        {"banned_tokens": frozenset({99})},
        {"banned_tokens": frozenset(range(10))},
    ],
)
def test_tokens_that_do_not_exist_and_bans_of_all_are_refused(more) -> None:
    with pytest.raises(EngineError) as caught:
        sampling_of(request(**more), 10)
    assert caught.value.code == "invalid_request"


def test_a_request_says_all_of_the_settings() -> None:
    asked = request(
        temperature=0.5, top_p=0.9, top_k=7, min_p=0.1, repetition_penalty=1.1, seed=3,
        logit_bias=((1, 2.0),), banned_tokens=frozenset({4}), acceptance="rejection",
    )  # fmt: skip
    assert sampling_of(asked, 10) == Sampling(
        0.5, 0.9, 3, 7, 0.1, 1.1, ((1, 2.0),), frozenset({4}), "rejection"
    )
