from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from drafters.core import DraftContext
from drafters.source import SourceDrafter

SOURCE = list(range(100, 160))


def begun(source=SOURCE) -> SourceDrafter:
    drafter = SourceDrafter()
    drafter.begin(DraftContext(prompt=[1, 2, 3], source=source))
    return drafter


def emit(drafter, tokens) -> None:
    for token in tokens:
        drafter.observe([], token)


def test_it_starts_at_the_start_of_the_source() -> None:
    draft = begun().propose(5)
    assert list(draft.tokens) == [100, 101, 102, 103, 104]
    assert draft.origin == "source"
    assert draft.source_index == 0


def test_it_goes_on_behind_a_copied_run() -> None:
    drafter = begun()
    drafter.observe([100, 101, 102], 103)
    assert list(drafter.propose(3).tokens) == [104, 105, 106]


def test_after_a_replaced_token_it_goes_on_behind_it() -> None:
    drafter = begun()
    emit(drafter, [100, 101, 7])
    assert list(drafter.propose(2).tokens) == [103, 104]


def test_after_an_inserted_run_it_finds_its_place_with_one_token() -> None:
    drafter = begun()
    emit(drafter, [100, 101, 7, 8, 9, 102])
    assert list(drafter.propose(3).tokens) == [103, 104, 105]


def test_after_a_deleted_run_it_finds_its_place_with_one_token() -> None:
    drafter = begun()
    emit(drafter, [100, 101, 102, 120])
    assert list(drafter.propose(3).tokens) == [121, 122, 123]


def test_a_repeated_line_is_found_at_the_place_that_the_alignment_says() -> None:
    line = [50, 51, 52]
    source = [1, *line, 2, *line, 3, *line, 4]
    drafter = begun(source)
    emit(drafter, [1, *line, 2, 99, *line])
    assert list(drafter.propose(2).tokens) == [3, 50]


def test_it_drafts_nothing_past_the_end() -> None:
    drafter = begun([1, 2])
    emit(drafter, [1, 2])
    assert not drafter.propose(4).tokens


def test_without_a_source_it_drafts_nothing() -> None:
    drafter = begun([])
    assert not drafter.propose(4).tokens
    emit(drafter, [5, 6])
    assert not drafter.propose(4).tokens


def test_confidence_is_lower_right_after_an_edit_and_grows_with_matches() -> None:
    drafter = begun()
    emit(drafter, [100, 7])
    unsure = drafter.propose(1).confidence
    emit(drafter, [102, 103])
    assert drafter.propose(1).confidence > unsure


@given(
    st.lists(st.integers(0, 6), max_size=60),
    st.lists(st.integers(0, 6), max_size=120),
    st.integers(0, 20),
)
def test_whatever_is_emitted_it_drafts_runs_of_the_source_within_the_limit(
    source, emitted, limit
) -> None:
    drafter = begun(source)
    for token in emitted:
        drafter.observe([], token)
        draft = drafter.propose(limit)
        assert len(draft.tokens) <= limit
        if draft.tokens:
            start = draft.source_index
            assert list(draft.tokens) == source[start : start + len(draft.tokens)]
            assert 0.0 <= draft.confidence <= 1.0


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60))
def test_an_unchanged_answer_is_drafted_to_its_last_token(source) -> None:
    drafter = begun(source)
    answer: list[int] = []
    while len(answer) < len(source):
        draft = list(drafter.propose(8).tokens)
        assert draft == source[len(answer) : len(answer) + 8]
        drafter.observe(draft[:-1], draft[-1])
        answer += draft
    assert answer == source


def test_a_token_costs_well_under_a_millisecond_at_8000_tokens_of_source() -> None:
    source = [i % 40 for i in range(8000)]
    drafter = begun(source)
    started = time.process_time()
    for token in range(400):
        drafter.observe([], (token * 7) % 43)
        drafter.propose(16)
    # Generous for a busy machine: a mistake in complexity would take seconds.
    assert time.process_time() - started < 1.0
