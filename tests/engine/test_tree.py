from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.core import NO_DRAFT, Draft, chain
from engine.tree import View, children_of, main_length, taken, tree_of
from tests.engine.adversary import random_parents


@pytest.mark.parametrize(
    ("parents", "length"),
    [((), 4), ((-1, 0, 1, 2), 4), ((-1, 0, -1, 2), 2), ((-1, -1, -1, -1), 1), ((-1, 0, 1, 1), 3)],
)
def test_the_main_chain_is_the_beginning_that_follows_itself(parents, length) -> None:
    draft = Draft([5, 6, 7, 8], "source", 0.9, 3, parents)
    assert main_length(draft) == length
    assert chain(draft) == Draft([5, 6, 7, 8][:length], "source", 0.9, 3)


def test_no_draft_has_no_main_chain() -> None:
    assert main_length(NO_DRAFT) == 0
    assert chain(NO_DRAFT) == NO_DRAFT


@pytest.mark.parametrize("parents", [[], [-1], [-1, 0, 1, 2]])
def test_a_chain_needs_no_tree(parents) -> None:
    assert tree_of(parents) is None


def test_each_branch_has_a_view_of_its_own_path() -> None:
    # Rows: 0, the chain 1 2 3, the branch 4 5 behind 1, and 6 behind 4.
    tree = tree_of([-1, 0, 1, 0, 3, 3])
    assert tree is not None
    assert tree.depths == (0, 1, 2, 3, 2, 3, 3)
    assert tree.order == (0, 1, 2, 3, 4, 5, 6)
    assert tree.main == 4
    assert tree.views == (View(4, 6, (0, 1, 4, 5)), View(6, 7, (0, 1, 4, 6)))


@pytest.mark.parametrize("parents", [[0], [-1, 1], [-2], [-1, 0, 5]])
def test_a_token_before_the_one_that_it_follows_is_refused(parents) -> None:
    with pytest.raises(ValueError, match="cannot follow"):
        tree_of(parents)


@given(st.integers(0, 2**30), st.integers(0, 30), st.integers(0, 5))
def test_every_row_is_in_one_view_and_finds_its_path_there(seed, count, filling) -> None:
    parents = random_parents(random.Random(seed), count)
    tree = tree_of(parents)
    if tree is None:
        assert parents == list(range(-1, count - 1))
        return
    tree = tree.widened(count + 1 + filling)
    assert sorted(tree.order) == list(range(count + 1 + filling))
    assert tree.is_in_order is (list(tree.order) == sorted(tree.order))
    for row in tree.order[: tree.main]:
        assert tree.paths[row] == tuple(range(row + 1))
    place = tree.main
    for view in tree.views:
        assert view.start == place < view.stop
        for row in tree.order[view.start : view.stop]:
            if row <= count:
                assert view.path[: len(tree.paths[row])] == tree.paths[row]
        place = view.stop
    assert place == len(tree.order)
    assert tree.depths[: count + 1] == tuple(len(path) - 1 for path in tree.paths)


@given(st.integers(0, 2**30), st.integers(0, 20))
def test_a_part_of_a_tree_is_that_tree_without_the_rest(seed, count) -> None:
    choice = random.Random(seed)
    parents = random_parents(choice, count)
    nodes: list[int] = []
    for node, parent in enumerate(parents):
        if parent in (-1, *nodes) and choice.random() < 0.8:
            nodes.append(node)
    kept = taken(parents, nodes) or list(range(-1, len(nodes) - 1))
    for index, parent in enumerate(kept):
        assert (nodes[parent] if parent >= 0 else -1) == parents[nodes[index]]
    assert taken((), list(range(len(nodes)))) == []


def test_children_stand_in_the_order_of_the_draft() -> None:
    assert children_of([-1, 0, -1, 0], 4) == [[0, 2], [1, 3], [], [], []]
    assert children_of((), 2) == [[0], [1], []]
