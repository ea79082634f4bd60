from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.core import Draft
from engine.chances import Acceptance, kind_of
from tests.engine.adversary import random_parents

WRONG = -7
"""A token that nobody drafts."""


def observe(acceptance: Acceptance, draft: Draft, accepted: int) -> None:
    """Tell that so many tokens of a chain were right, and the next one wrong."""
    nodes = list(range(len(draft.tokens)))
    acceptance.observe(draft, nodes, nodes[:accepted], WRONG)


@pytest.mark.parametrize(
    ("confidence", "kind"), [(0.0, 0), (0.49, 0), (0.5, 1), (0.75, 2), (0.9, 3), (1.0, 7)]
)
def test_drafts_are_told_apart_by_origin_and_certainty(confidence, kind) -> None:
    assert kind_of(Draft([1], "ngram", confidence)) == ("ngram", kind)


def test_chances_follow_what_was_accepted() -> None:
    acceptance = Acceptance()
    good, bad = Draft(list(range(8)), "source", 0.9), Draft(list(range(8)), "ngram", 0.5)
    for _ in range(100):
        observe(acceptance, good, 8)
        observe(acceptance, bad, 1)
    assert acceptance.chances(good)[-1] > 0.8
    first, second, *_ = acceptance.chances(bad)
    assert first > 0.95
    assert second < 0.05


def test_what_a_drafter_says_of_each_token_is_believed_at_first() -> None:
    draft = Draft([1, 2, 3], "source", 0.8, None, [-1, 0, -1], [0.8, 0.6, 0.15])
    assert Acceptance().chances(draft) == pytest.approx([0.8, 0.6, 0.15])


def test_a_drafter_that_says_too_much_is_believed_less() -> None:
    acceptance = Acceptance()
    boastful = Draft([1, 2], "source", 0.9, None, (), [0.9, 0.81])
    modest = Draft([1, 2], "source", 0.3, None, (), [0.3, 0.1])
    for turn in range(200):
        observe(acceptance, boastful, turn % 2)
    # Both tokens were said to be right nine times in ten; of those seen every third was.
    assert acceptance.chances(boastful)[0] == pytest.approx(1 / 3, abs=0.05)
    assert acceptance.chances(modest) == pytest.approx([0.3, 0.1])


def test_a_side_branch_is_judged_where_the_tokens_before_it_are_wrong() -> None:
    acceptance = Acceptance()
    draft = Draft([1, 2], "source", 0.6, None, [-1, -1], [0.6, 0.2])
    for _ in range(100):
        acceptance.observe(draft, [0, 1], [1], WRONG)
        for _ in range(3):
            acceptance.observe(draft, [0, 1], [0], WRONG)
    # The first is right three times in four, the second always when the first is not.
    assert acceptance.chances(draft) == pytest.approx([0.75, 0.25], abs=0.03)


def test_what_came_behind_the_first_refusal_teaches_nothing() -> None:
    acceptance = Acceptance()
    draft = Draft(list(range(20)), "source", 0.9)
    before = acceptance.chances(draft)
    for _ in range(50):
        observe(acceptance, draft, 0)
    after = acceptance.chances(draft)
    assert after[0] < 0.1
    for place in range(1, 20):
        assert after[place] / after[place - 1] == pytest.approx(before[place] / before[place - 1])


def test_old_observations_fade() -> None:
    acceptance = Acceptance()
    draft = Draft([1], "model", 0.5)
    for _ in range(2000):
        observe(acceptance, draft, 0)
    for _ in range(400):
        observe(acceptance, draft, 1)
    assert acceptance.chances(draft)[0] > 0.8


@given(st.integers(0, 2**30), st.integers(1, 12))
def test_chances_of_what_follows_one_token_are_those_of_different_cases(seed, count) -> None:
    choice = random.Random(seed)
    acceptance = Acceptance()
    for _ in range(choice.randint(1, 30)):
        parents = random_parents(choice, count)
        tokens = choice.choices(range(3), k=count)
        draft = Draft(tokens, choice.choice("ab"), choice.random(), None, parents)
        chances = acceptance.chances(draft)
        for parent in range(-1, count):
            following = [node for node in range(count) if parents[node] == parent]
            whole = chances[parent] if parent >= 0 else 1.0
            assert all(0.0 <= chances[node] <= whole for node in following)
            assert sum(chances[node] for node in following) <= whole + 1e-12
            said = set()
            for node in following:
                assert (chances[node] == 0.0) is (whole == 0.0 or tokens[node] in said)
                said.add(tokens[node])
        verified, path = a_pass(choice, draft)
        acceptance.observe(draft, verified, path, choice.randrange(4))


def a_pass(choice: random.Random, draft: Draft) -> tuple[list[int], list[int]]:
    """Verify some part of a draft and accept a path in it."""
    verified: list[int] = []
    for node, parent in enumerate(draft.parents):
        if parent in (-1, *verified) and choice.random() < 0.8:
            verified.append(node)
    path: list[int] = []
    while following := [n for n in verified if draft.parents[n] == (path[-1] if path else -1)]:
        if choice.random() < 0.3:
            break
        path.append(choice.choice(following))
    return verified, path


TREE = Draft([1, 2, 3, 5, 6, 7], "source", 0.9, None, (-1, 0, 1, 0, 3, 0))
"""1 2 3, and behind the 1 also 5 6, or 7."""


def learnt(verified, path, next_token) -> list[float]:
    """Return the chances of TREE's tokens after many passes that ended alike."""
    acceptance = Acceptance()
    for _ in range(100):
        acceptance.observe(TREE, verified, path, next_token)
    return [round(chance, 1) for chance in acceptance.chances(TREE)]


@pytest.mark.parametrize("verified", [[0, 1, 2], [0, 1, 2, 3, 4, 5]])
def test_a_branch_learns_where_what_stands_before_it_is_wrong(verified) -> None:
    # The main chain was right: nothing is known of the branches.
    assert learnt(verified, [0, 1, 2], 9) == [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    # It was wrong, and so were they; or the second was right, verified or not.
    assert learnt(verified, [0], 9) == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert learnt(verified[:5], [0], 7) == [1.0, 0.0, 0.0, 0.0, 0.0, 0.9]


def test_a_taken_branch_says_that_the_main_chain_was_wrong_there() -> None:
    everything = [0, 1, 2, 3, 4, 5]
    assert learnt(everything, [0, 3, 4], 9) == [1.0, 0.0, 0.0, 0.9, 0.9, 0.0]
    assert learnt(everything, [0, 3], 9) == [1.0, 0.0, 0.0, 0.9, 0.0, 0.0]


def test_of_equal_tokens_the_first_is_the_one_that_counts() -> None:
    acceptance = Acceptance()
    draft = Draft([1, 2, 1, 2, 3], "source", 0.5, None, (-1, -1, -1, -1, 2))
    first, second, *rest = acceptance.chances(draft)
    assert first > second > 0.0
    assert rest == [0.0, 0.0, 0.0]
