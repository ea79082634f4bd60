from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.core import NO_DRAFT, Draft
from engine.cost import CostModel, PassPoint
from engine.window import LONGEST_REST, Acceptance, WindowPolicy, best_length, kind_of

STAIRS = [1.0, 1.01, 1.02, 1.03, 1.2, 1.4, 1.6, 1.8, 2.0]


def cost_of(stairs) -> CostModel:
    return CostModel(PassPoint(rows, 0, s, 1) for rows, s in enumerate(stairs, 1))


@pytest.mark.parametrize(
    ("chances", "length"),
    [
        ([], 0),
        ([0.0] * 8, 0),
        ([0.005], 0),  # a row costs 1%
        ([0.02], 1),
        ([1.0] * 8, 8),
        ([0.9, 0.9, 0.9, 0.1, 0.1, 0.1, 0.1, 0.1], 3),  # the fourth row costs 17%
        ([0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 0),
    ],
)
def test_the_best_length_has_the_most_expected_tokens_a_second(chances, length) -> None:
    assert best_length(chances, STAIRS) == length


@given(st.lists(st.floats(0, 1), max_size=8))
def test_no_other_length_has_a_higher_rate(chances) -> None:
    def rate(length: int) -> float:
        tokens, alive = 1.0, 1.0
        for chance in chances[:length]:
            alive *= chance
            tokens += alive
        return tokens / STAIRS[length]

    best = best_length(chances, STAIRS)
    assert all(rate(length) <= rate(best) for length in range(len(chances) + 1))


@pytest.mark.parametrize(
    ("confidence", "kind"), [(0.0, 0), (0.49, 0), (0.5, 1), (0.75, 2), (0.9, 3), (1.0, 7)]
)
def test_drafts_are_told_apart_by_origin_and_certainty(confidence, kind) -> None:
    assert kind_of(Draft([1], "ngram", confidence)) == ("ngram", kind)


def test_chances_follow_what_was_accepted() -> None:
    acceptance = Acceptance()
    good, bad = Draft(list(range(8)), "source", 0.9), Draft(list(range(8)), "ngram", 0.5)
    for _ in range(100):
        acceptance.observe(good, 8)
        acceptance.observe(bad, 1)
    assert min(acceptance.chances(good)) > 0.95
    first, second, *_ = acceptance.chances(bad)
    assert first > 0.95
    assert second < 0.05


def test_what_came_behind_the_first_refusal_teaches_nothing() -> None:
    acceptance = Acceptance()
    draft = Draft(list(range(20)), "source", 0.9)
    before = acceptance.chances(draft)
    for _ in range(50):
        acceptance.observe(draft, 0)
    after = acceptance.chances(draft)
    assert after[0] < 0.1
    assert after[1:] == before[1:]


def test_old_observations_fade() -> None:
    acceptance = Acceptance()
    draft = Draft([1], "model", 0.5)
    for _ in range(2000):
        acceptance.observe(draft, 0)
    for _ in range(400):
        acceptance.observe(draft, 1)
    assert acceptance.chances(draft)[0] > 0.8


def test_a_draft_that_never_holds_is_probed_less_and_less_often() -> None:
    # Every row costs as much as a pass alone, so that only a sure draft pays.
    policy = WindowPolicy(cost_of([1.0, 2.0, 3.0]), Acceptance(), 2)
    wrong = Draft([1, 2], "ngram", 0.5)
    tried: list[int] = []
    for number in range(600):
        length = policy.cut(wrong, 0)
        if length:
            tried.append(number)
        policy.observe(wrong._replace(tokens=wrong.tokens[:length]), 0, 0, 1.0 + length)
    gaps = [b - a for a, b in pairwise(tried)]
    assert gaps[:6] == [3, 5, 9, 17, 33, 65]
    assert max(gaps) == LONGEST_REST + 1
    assert len(tried) < 16


def test_a_probe_that_finds_something_ends_the_rest() -> None:
    policy = WindowPolicy(cost_of([1.0, 2.0, 3.0]), Acceptance(), 2)
    draft = Draft([1, 2], "ngram", 0.5)
    for _ in range(100):
        length = policy.cut(draft, 0)
        policy.observe(draft._replace(tokens=draft.tokens[:length]), 0, 0, 1.0 + length)
    while not policy.cut(draft, 0):
        pass
    policy.observe(draft._replace(tokens=[1]), 1, 0, 2.0)
    assert policy.cut(draft, 0) == 1


def test_without_a_draft_there_is_nothing_to_verify() -> None:
    policy = WindowPolicy(cost_of([1.0, 1.0]), Acceptance(), 8)
    assert policy.cut(NO_DRAFT, 0) == 0
