from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drafters.alignment import HYPOTHESES, Alignment, Edit

SOURCE = list(range(100, 160))


def followed(source, emitted) -> Alignment:
    alignment = Alignment(source)
    for token in emitted:
        alignment.advance(token)
    return alignment


def test_after_a_long_insertion_it_goes_on_where_it_left_off() -> None:
    alignment = followed(SOURCE, [100, 101, *range(1, 60), 102])
    assert alignment.beam[0].place == 3


def test_after_a_deletion_it_goes_on_behind_the_deleted_lines() -> None:
    alignment = followed(SOURCE, [100, 101, 130, 131])
    assert alignment.beam[0].place == 32


def test_of_equal_lines_the_one_nearest_behind_the_divergence_is_taken() -> None:
    line = [50, 51, 52]
    source = [1, *line, 2, *line, 3, *line, 4]
    assert followed(source, [1, *line, 99, 98, *line]).beam[0].place == 8


def test_a_block_that_was_moved_up_is_followed() -> None:
    alignment = followed(SOURCE, [100, 101, 140, 141, 142, 143, 144])
    assert alignment.is_firm
    assert alignment.beam[0].place == 45


def test_behind_a_moved_block_the_place_before_it_is_remembered() -> None:
    alignment = followed(SOURCE, [100, 101, *range(140, 150), 102])
    assert alignment.earlier == 2
    assert 3 in [hypothesis.place for hypothesis in alignment.beam]


def test_an_edit_is_told_when_two_tokens_match_again() -> None:
    alignment = Alignment(SOURCE)
    told = [alignment.advance(token) for token in [100, 7, 8, 103, 104, 105]]
    assert told == [None, None, None, None, Edit(1, 3, 1, 3), None]


def test_an_insertion_is_told_as_an_edit_of_nothing() -> None:
    alignment = Alignment(SOURCE)
    told = [alignment.advance(token) for token in [100, 7, 101, 102]]
    assert told[-1] == Edit(1, 1, 1, 2)


@given(
    st.lists(st.integers(0, 5), max_size=40),
    st.lists(st.integers(0, 6), max_size=80),
)
def test_it_is_total_and_its_places_are_in_the_source(source, emitted) -> None:
    alignment = Alignment(source)
    for count, token in enumerate(emitted, 1):
        edit = alignment.advance(token)
        assert 1 <= len(alignment.beam) <= HYPOTHESES
        assert all(0 <= h.place <= len(source) for h in alignment.beam)
        assert alignment.is_firm == (alignment.unmatched == 0)
        if edit:
            assert 0 <= edit.start <= edit.end <= len(source)
            assert 0 <= edit.emitted <= edit.emitted_end <= count
