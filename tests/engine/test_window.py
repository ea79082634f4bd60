from __future__ import annotations

import random
from itertools import accumulate, combinations, pairwise
from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.core import NO_DRAFT, Draft
from engine.chances import Acceptance
from engine.cost import CostModel, PassPoint
from engine.window import LONGEST_REST, WindowPolicy, best_nodes, branch_count
from tests.engine.adversary import random_parents

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
    through = list(accumulate(chances, mul))
    assert best_nodes((), through, STAIRS) == list(range(length))


@given(st.lists(st.floats(0, 1), max_size=8))
def test_no_other_length_has_a_higher_rate(chances) -> None:
    def rate(length: int) -> float:
        tokens, alive = 1.0, 1.0
        for chance in chances[:length]:
            alive *= chance
            tokens += alive
        return tokens / STAIRS[length]

    best = best_nodes((), list(accumulate(chances, mul)), STAIRS)
    assert best == list(range(len(best)))
    assert all(rate(length) <= rate(len(best)) + 1e-12 for length in range(len(chances) + 1))


TREE = (-1, 0, 1, -1, 3, 0)
"""A chain of three, a branch of two beside it, and one token beside its second."""


@pytest.mark.parametrize(
    ("chances", "stairs", "branch", "chosen"),
    [
        # Rows that cost nothing: all that may be right.
        ([0.5, 0.4, 0.3, 0.2, 0.1, 0.0], [1.0] * 7, 0.0, [0, 1, 2, 3, 4]),
        # Two rows cost nothing: the likeliest two, wherever they stand.
        ([0.5, 0.1, 0.1, 0.4, 0.3, 0.1], [1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0], 0.0, [0, 3]),
        ([0.2, 0.1, 0.1, 0.6, 0.5, 0.1], [1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0], 0.0, [3, 4]),
        # The same, but a side branch costs more than what it brings.
        ([0.5, 0.1, 0.1, 0.4, 0.3, 0.1], [1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0], 0.3, [0, 1]),
        # Every row costs as much as a pass: only what is sure pays.
        ([0.9, 0.8, 0.7, 0.1, 0.1, 0.1], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 0.0, []),
        # Each row costs a quarter: the chain pays, the branches do not.
        ([0.9, 0.8, 0.7, 0.1, 0.1, 0.1], [1 + i / 4 for i in range(7)], 0.0, [0, 1, 2]),
    ],
)
def test_the_nodes_of_a_tree_are_chosen_by_expected_tokens_a_second(
    chances, stairs, branch, chosen
) -> None:
    assert best_nodes(TREE, chances, stairs, branch) == chosen


@given(st.integers(0, 2**30), st.integers(1, 7), st.sampled_from([0.0, 0.02, 0.3]))
def test_no_other_part_of_a_tree_has_a_higher_rate(seed, count, step) -> None:
    choice = random.Random(seed)
    parents = random_parents(choice, count)
    chances = [0.0] * count
    for node, parent in enumerate(parents):
        chances[node] = (chances[parent] if parent >= 0 else 1.0) * choice.random()
    stairs = list(accumulate([1.0, *(choice.random() * step for _ in range(count))]))

    def rate(nodes) -> float:
        return (1.0 + sum(chances[node] for node in nodes)) / stairs[len(nodes)]

    best = best_nodes(parents, chances, stairs)
    for size in range(count + 1):
        for nodes in combinations(range(count), size):
            if all(parents[node] in (-1, *nodes) for node in nodes):
                assert rate(nodes) <= rate(best) + 1e-12
    assert all(parents[node] in (-1, *best) for node in best)
    # Where branches cost something, the chosen part is never worse than the best chain.
    dear = best_nodes(parents, chances, stairs, 0.1)
    chain = best_nodes(parents, chances, stairs, 1e9)
    assert branch_count(parents, chain) == 0
    assert rate(dear) / (1 + 0.1 * branch_count(parents, dear)) >= rate(chain) - 1e-12


def test_a_tree_that_does_not_pay_is_never_verified() -> None:
    # Every row costs a third of a pass. A branch is right once in ten refusals.
    policy = WindowPolicy(cost_of([1.0 + i / 3 for i in range(7)]), Acceptance(), 6)
    draft = Draft([1, 2, 3, 4, 5], "source", 0.9, None, (-1, 0, 1, -1, 3))
    for number in range(400):
        chosen = policy.choose(draft, 0)
        assert branch_count(draft.parents, chosen) == 0
        right = number % 5 != 0  # of the main chain
        path = chosen if right else []
        said = 9 if right or number % 50 else 4
        policy.observe(draft, chosen, path, said, 0, 1.0 + len(chosen) / 3)
    assert policy.choose(draft, 0) == [0, 1, 2]


def test_a_branch_that_was_right_without_being_verified_is_verified_then() -> None:
    policy = WindowPolicy(cost_of([1.0 + i / 3 for i in range(4)]), Acceptance(), 3)
    draft = Draft([1, 2, 4], "source", 0.5, None, (-1, 0, -1))
    assert policy.choose(draft, 0) == [0, 1]
    for _ in range(20):
        chosen = policy.choose(draft, 0)
        path = [2] if 2 in chosen else []
        policy.observe(draft, chosen, path, 9 if path else 4, 0, 1.0 + len(chosen) / 3)
    assert policy.choose(draft, 0) == [2]


def test_what_branches_cost_is_learnt_and_then_they_are_not_verified() -> None:
    policy = WindowPolicy(cost_of([1.0] * 4), Acceptance(), 3)
    draft = Draft([1, 2, 4], "source", 0.9, None, (-1, 0, -1))
    assert policy.choose(draft, 0) == [0, 1, 2]
    passes = 0
    while policy.choose(draft, 0) == [0, 1, 2]:
        policy.observe(draft, [0, 1, 2], [0, 1], 9, 0, 1.4)
        passes += 1
    assert passes < 5
    assert policy.choose(draft, 0) == [0, 1]


def test_a_draft_that_never_holds_is_probed_less_and_less_often() -> None:
    # Every row costs as much as a pass alone, so that only a sure draft pays.
    policy = WindowPolicy(cost_of([1.0, 2.0, 3.0]), Acceptance(), 2)
    wrong = Draft([1, 2], "ngram", 0.5)
    tried: list[int] = []
    for number in range(600):
        chosen = policy.choose(wrong, 0)
        if chosen:
            tried.append(number)
        policy.observe(wrong, chosen, [], 9, 0, 1.0 + len(chosen))
    gaps = [b - a for a, b in pairwise(tried)]
    assert gaps[:6] == [3, 5, 9, 17, 33, 65]
    assert max(gaps) == LONGEST_REST + 1
    assert len(tried) < 16


def test_a_probe_that_finds_something_ends_the_rest() -> None:
    policy = WindowPolicy(cost_of([1.0, 2.0, 3.0]), Acceptance(), 2)
    draft = Draft([1, 2], "ngram", 0.5)
    for _ in range(100):
        chosen = policy.choose(draft, 0)
        policy.observe(draft, chosen, [], 9, 0, 1.0 + len(chosen))
    while not policy.choose(draft, 0):
        pass
    policy.observe(draft, [0], [0], 9, 0, 2.0)
    assert policy.choose(draft, 0) == [0]


def test_without_a_draft_there_is_nothing_to_verify() -> None:
    policy = WindowPolicy(cost_of([1.0, 1.0]), Acceptance(), 8)
    assert policy.choose(NO_DRAFT, 0) == []
