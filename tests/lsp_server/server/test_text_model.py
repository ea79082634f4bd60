"""The fake editor's own text model, by examples worked out by hand."""

from __future__ import annotations

import pytest

from tests.editor.text_model import Encoding, InvalidPosition, TextModel

TEXT = "a🙂é\r\nb\rc\n\x0cd\u2028e"


@pytest.mark.parametrize(
    ("encoding", "emoji_width", "accent_width"),
    [("utf-8", 4, 2), ("utf-16", 2, 1), ("utf-32", 1, 1)],
)
def test_columns_count_code_units(encoding: Encoding, emoji_width: int, accent_width: int) -> None:
    model = TextModel(TEXT, encoding)
    assert model.text == TEXT
    assert len(model.lines()) == 4
    assert model.find("é") == (0, 1 + emoji_width)
    assert model.find("\r\n") == (0, 1 + emoji_width + accent_width)
    assert model.find("e") == (3, 2 + len(TextModel("\u2028", encoding).units))
    model.replace((0, 1), (0, 1 + emoji_width), "x")
    assert model.text == TEXT.replace("🙂", "x")


@pytest.mark.parametrize("place", [(0, 2), (0, 5), (4, 0), (1, 2), (-1, 0), (0, -1)])
def test_a_place_that_does_not_exist_is_an_error(place: tuple[int, int]) -> None:
    with pytest.raises(InvalidPosition):
        TextModel(TEXT, "utf-16").index(place)


def test_several_edits_are_in_the_coordinates_of_one_text() -> None:
    model = TextModel("one\ntwo\nthree\n", "utf-16")
    model.replace_all([((2, 0), (2, 5), "3"), ((0, 0), (0, 3), "1\n1.5")])
    assert model.text == "1\n1.5\ntwo\n3\n"
    with pytest.raises(AssertionError, match="overlap"):
        model.replace_all([((0, 0), (1, 0), ""), ((0, 1), (1, 1), "")])
