from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.cascade import CascadeDrafter
from drafters.core import NO_DRAFT, Draft, DraftContext
from drafters.gains import FREE, Costs, Gains
from drafters.growth import Growth
from drafters.model import Saying


class Fixed:
    """Drafts what it is told and remembers what it sees."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.seen: list[int] = []

    def begin(self, context: DraftContext) -> None:
        self.seen = list(context.prompt)

    def propose(self, limit: int) -> Draft:
        return self.draft

    def observe(self, accepted, next_token) -> None:
        self.seen += [*accepted, next_token]


class Knows:
    """A small model that knows how one text goes on, and counts its passes."""

    def __init__(self, text: Sequence[int], costs: Costs = FREE, sure: float = 0.9) -> None:
        self.text = list(text)
        self.gains = Gains()
        self.price = costs
        self.sure = sure
        self.passes: list[int] = []

    def costs(self, context: Sequence[int]) -> Costs:
        return self.price

    def say(self, tokens: Sequence[int], rows: int) -> list[Saying]:
        self.passes.append(rows)
        first = len(tokens) - rows + 1
        return [
            Saying(
                self.text[length] if list(tokens[:length]) == self.text[:length] else 0, self.sure
            )
            for length in range(first, len(tokens) + 1)
        ]


PROMPT = [90, 91]
NEW = [*PROMPT, 1, 2, 3, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55]


def copy(*tokens: int, sure: float = 0.9) -> Draft:
    chances = [sure ** (index + 1) for index in range(len(tokens))]
    return Draft(tokens, "source", sure, 7, (), chances)


def cascade(draft: Draft, model: Knows, trees: bool = False) -> CascadeDrafter:
    made = CascadeDrafter(Fixed(draft), model, trees)
    made.begin(DraftContext(PROMPT))
    return made


@pytest.mark.parametrize("trees", [False, True])
def test_a_copied_prefix_goes_on_with_the_models_tokens_in_one_draft(trees) -> None:
    model = Knows(NEW)
    draft = cascade(copy(1, 2, 3), model, trees).propose(20)
    assert list(draft.tokens[:5]) == [1, 2, 3, 40, 41]
    assert list(draft.origins[:5]) == ["source"] * 3 + ["model"] * 2
    assert (draft.origin, draft.source_index) == ("source", 7)
    # The copied run took one pass of the small model, each new token one more.
    assert model.passes[0] == 4
    assert set(model.passes[1:]) == {1}


def test_where_the_model_disagrees_its_token_is_a_branch() -> None:
    draft = cascade(copy(1, 2, 30, 31), Knows(NEW), trees=True).propose(20)
    children = {
        token for token, parent in zip(draft.tokens, draft.parents, strict=True) if parent == 1
    }
    assert children == {3, 30}


def test_without_trees_a_sure_model_takes_the_doubtful_copys_place() -> None:
    draft = cascade(copy(1, 2, 30, 31, sure=0.55), Knows(NEW, sure=0.99)).propose(20)
    assert list(draft.tokens[:4]) == [1, 2, 3, 40]
    assert not draft.parents


def test_without_a_copy_the_model_drafts_alone() -> None:
    draft = cascade(NO_DRAFT, Knows(NEW)).propose(20)
    assert list(draft.tokens[:3]) == [1, 2, 3]
    assert (draft.origin, draft.source_index) == ("model", None)


def test_a_model_that_costs_more_than_it_gains_is_not_asked() -> None:
    dear = Knows(NEW, Costs(target=1.0, model=1.5))
    assert cascade(NO_DRAFT, dear).propose(20) is NO_DRAFT
    # What is sure gains nothing, and costs what it costs.
    cheap = Knows(NEW, Costs(target=1.0, model=0.2))
    sure = copy(*range(1, 20), sure=0.999)
    assert cascade(sure, cheap).propose(20) is sure
    assert not dear.passes
    assert not cheap.passes
    assert cascade(NO_DRAFT, cheap).propose(20).tokens


def test_the_dearer_the_model_the_fewer_its_passes() -> None:
    counts = []
    for price in (0.0, 0.4, 0.6, 1.0):
        model = Knows(NEW, Costs(1.0, price))
        cascade(NO_DRAFT, model).propose(20)
        counts.append(len(model.passes))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[2] > counts[-1] == 0


def test_a_prompt_is_read_only_when_asking_would_have_saved_as_much() -> None:
    model = Knows([*PROMPT, *[5] * 60], Costs(target=1.0, model=0.1, unread=3.0))
    drafter = cascade(NO_DRAFT, model)
    waited = 0
    while not drafter.propose(20).tokens:
        drafter.observe([], 5)
        waited += 1
    assert 3 <= waited <= 6


def test_a_model_that_is_never_right_is_asked_ever_less_and_one_that_is_goes_on() -> None:
    def asked(known: Sequence[int]) -> list[bool]:
        model = Knows(known, Costs(1.0, 0.3))
        drafter = cascade(NO_DRAFT, model)
        found = []
        for place in range(2, 302):
            before = len(model.passes)
            draft = drafter.propose(8)
            found.append(len(model.passes) > before)
            right = 0
            while right < len(draft.tokens) and draft.tokens[right] == 5 and place + right < 302:
                right += 1
            drafter.observe([5] * right, 5)
        return found

    never = asked([*PROMPT, *[6] * 900])
    always = asked([*PROMPT, *[5] * 9000])
    assert sum(never[100:]) < 0.2 * len(never[100:])
    assert any(never[100:])  # it is tried again
    assert all(always)


def test_all_see_what_was_emitted_whoever_drafted_it() -> None:
    copier, model = Fixed(NO_DRAFT), Knows([7, 8, 9, 10, 11])
    drafter = CascadeDrafter(copier, model)
    drafter.begin(DraftContext(prompt=[7]))
    drafter.observe([8], 9)
    assert copier.seen == [7, 8, 9]
    assert drafter.propose(1).tokens == [10]


TREES = st.integers(0, 12).flatmap(
    lambda count: st.tuples(
        st.tuples(*(st.integers(-1, index - 1) for index in range(count))),
        st.lists(st.floats(0.0, 1.0), min_size=count, max_size=count),
        st.lists(st.integers(0, 6), min_size=count, max_size=count),
    )
)


@given(
    tree=TREES,
    heard=st.lists(st.tuples(st.integers(-1, 30), st.integers(0, 6), st.floats(0, 1)), max_size=12),
    limit=st.integers(0, 20),
    trees=st.booleans(),
)
def test_whatever_is_heard_the_draft_is_well_formed(tree, heard, limit, trees) -> None:
    parents, shares, tokens = tree
    rank: dict[int, float] = {}
    chances: list[float] = []
    for parent, share in zip(parents, shares, strict=True):
        left = rank.get(parent, 1.0)
        rank[parent] = left * (1.0 - share)
        chances.append((chances[parent] if parent >= 0 else 1.0) * left * share)
    growth = Growth(Draft(tokens, "source", 0.5, 3, parents, chances))
    for node, token, probability in heard:
        if node < len(growth.tokens):
            growth.hear(node, token, probability)
    draft = growth.draft(limit, trees)
    count = len(draft.tokens)
    assert count <= limit
    assert len(draft.chances) == count
    assert all(0.0 <= chance <= 1.0 for chance in draft.chances)
    if count:
        assert len(draft.origins) == count
    ways = draft.parents or range(-1, count - 1)
    assert trees or not draft.parents
    for index, parent in enumerate(ways):
        assert -1 <= parent < index
        assert draft.chances[index] <= (draft.chances[parent] if parent >= 0 else 1.0) + 1e-9
