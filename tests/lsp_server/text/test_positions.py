from itertools import combinations_with_replacement, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.text.positions import LineIndex, LinePosition

from .texts import encodings, hard_texts

ENCODINGS = ("utf-8", "utf-16", "utf-32")


def units(char: str, encoding: str) -> int:
    code = ord(char)
    if encoding == "utf-8":
        return 1 + (code > 0x7F) + (code > 0x7FF) + (code > 0xFFFF)
    return 2 if encoding == "utf-16" and code > 0xFFFF else 1


def valid_positions(text: str, encoding: str) -> list[tuple[LinePosition, int]]:
    """Every valid position and its offset, found by walking over the text."""
    found = []
    line = character = at = 0
    while True:
        found.append((LinePosition(line, character), at))
        if at == len(text):
            return found
        line_end = "\r\n" if text.startswith("\r\n", at) else text[at]
        if line_end in ("\n", "\r", "\r\n"):
            line, character, at = line + 1, 0, at + len(line_end)
        else:
            character, at = character + units(text[at], encoding), at + 1


@given(hard_texts, encodings)
def test_every_valid_position_is_found_from_its_offset_and_back(text, encoding):
    index = LineIndex(text)
    for position, offset in valid_positions(text, encoding):
        assert index.position(offset, encoding) == position
        assert index.offset(position, encoding) == offset


@given(hard_texts, encodings, st.integers(-1, 30), st.integers(-1, 90))
def test_a_position_that_is_not_valid_means_the_nearest_valid_one_before_it(
    text, encoding, line, character
):
    known = valid_positions(text, encoding)
    last = known[-1][0].line
    if line > last:
        expected = len(text)
    else:
        wanted = (max(line, 0), max(character, 0) if line >= 0 else 0)
        expected = max(offset for position, offset in known if position <= wanted)
    assert LineIndex(text).offset(LinePosition(line, character), encoding) == expected


@given(hard_texts, encodings, st.integers(-2, 60))
def test_an_offset_between_cr_and_lf_or_outside_the_text_moves_to_a_valid_one(
    text, encoding, offset
):
    known = {at: position for position, at in valid_positions(text, encoding)}
    inside = min(max(offset, 0), len(text))
    expected = known.get(inside) or known[inside - 1]
    assert LineIndex(text).position(offset, encoding) == expected


@given(hard_texts)
def test_lines_join_to_the_text(text):
    index = LineIndex(text)
    ends = [index.line_start(line) for line in range(1, index.line_count + 1)]
    pieces = [text[index.line_start(n) : end] for n, end in enumerate(ends)]
    assert "".join(pieces) == text
    for line in range(index.line_count):
        assert index.line_end(line) == index.line_start(line) + len(pieces[line].rstrip("\r\n"))
        for offset in range(index.line_start(line), ends[line]):
            assert index.line_of(offset) == line


@given(hard_texts, hard_texts, st.data())
def test_an_index_after_a_change_is_the_index_of_the_new_text(text, new, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    changed = LineIndex(text).replaced(start, end, new)
    fresh = LineIndex(text[:start] + new + text[end:])
    assert changed.text == fresh.text
    starts = [fresh.line_start(line) for line in range(fresh.line_count)]
    assert [changed.line_start(line) for line in range(changed.line_count)] == starts


def test_an_index_after_a_change_is_right_wherever_cr_and_lf_meet():
    texts = ["".join(chars) for size in range(4) for chars in product("\r\na", repeat=size)]
    for text, new in product(texts, texts[:13]):
        for start, end in combinations_with_replacement(range(len(text) + 1), 2):
            changed = LineIndex(text).replaced(start, end, new)
            fresh = LineIndex(text[:start] + new + text[end:])
            assert [changed.line_start(n) for n in range(changed.line_count)] == [
                fresh.line_start(n) for n in range(fresh.line_count)
            ]


@pytest.mark.parametrize("char", ["\f", "\v", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_only_lf_crlf_and_cr_end_a_line(char):
    assert LineIndex(f"a{char}b").line_count == 1
    assert LineIndex("a\nb\r\nc\rd").line_count == 4


@pytest.mark.parametrize(
    ("character", "utf_8", "utf_16"),
    # "a😀b": the emoji takes 4 units of UTF-8, 2 of UTF-16.
    [(0, 0, 0), (1, 1, 1), (2, 1, 1), (3, 1, 2), (4, 1, 3), (5, 2, 3), (6, 3, 3), (99, 3, 3)],
)
def test_a_place_inside_a_character_is_its_start(character, utf_8, utf_16):
    index = LineIndex("a😀b\n")
    assert index.offset(LinePosition(0, character), "utf-8") == utf_8
    assert index.offset(LinePosition(0, character), "utf-16") == utf_16


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_text_without_final_line_end_has_no_position_behind_its_last_line(encoding):
    assert LineIndex("a\nbc").position(4, encoding) == LinePosition(1, 2)
    assert LineIndex("a\nbc\n").position(5, encoding) == LinePosition(2, 0)
    assert LineIndex("").position(0, encoding) == LinePosition(0, 0)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_line_of_a_million_wide_characters_is_looked_up_without_walking_over_it(encoding):
    index = LineIndex("😀" * 1_000_000)
    position = index.position(777_777, encoding)
    assert index.offset(position, encoding) == 777_777
