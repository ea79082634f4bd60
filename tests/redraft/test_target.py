"""From the command line's words to a span, and clear words where there is none."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from lsp_server.core import RewriteError
from lsp_server.languages import language_of
from lsp_server.spans import spans_named
from redraft.target import (
    At,
    Lines,
    Symbol,
    Target,
    find_span,
    parse_at,
    parse_lines,
    parse_symbol,
)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

TEXT = """\
import os

class Shelf:
    def count(self):
        return 1

    def take(self):
        return 2


def count(): return 3


limit = 4

"""


def _text(target: Target, text: str = TEXT, language: str = "python") -> str:
    span = find_span(text, language, target)
    return text[span.start : span.end]


def _error(target: Target, text: str = TEXT, language: str = "python") -> RewriteError:
    with pytest.raises(RewriteError) as caught:
        find_span(text, language, target)
    return caught.value


@pytest.mark.parametrize(
    ("value", "expected"),
    [("7", At(7)), ("7:1", At(7, 1)), ("120:33", At(120, 33))],
)
def test_at_is_a_line_and_maybe_a_column(value: str, expected: At) -> None:
    assert parse_at(value) == expected


@pytest.mark.parametrize("value", ["", "0", "3:0", "x", "3:", ":3", "-1", "3:4:5", "٣", "9" * 20])
def test_other_places_are_refused(value: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_at(value)


def test_lines_are_a_range_or_one_line() -> None:
    assert parse_lines("3-5") == Lines(3, 5)
    assert parse_lines("3") == Lines(3, 3)


@pytest.mark.parametrize("value", ["", "0-2", "5-3", "a-b", "3-", "-3", "3-4-5"])
def test_other_ranges_are_refused(value: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_lines(value)


def test_a_blank_name_is_refused() -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_symbol("  ")


def test_at_means_the_innermost_function_or_class() -> None:
    assert _text(At(4)) == "    def count(self):\n        return 1"
    assert _text(At(5, 12)) == "    def count(self):\n        return 1"
    assert _text(At(3)).startswith("class Shelf:")
    assert _text(At(11)) == "def count(): return 3"


def test_a_column_past_the_end_of_its_line_is_the_end_of_the_line() -> None:
    assert _text(At(11, 999)) == "def count(): return 3"


def test_lines_mean_whole_lines() -> None:
    assert _text(Lines(4, 5)) == "    def count(self):\n        return 1"
    assert find_span(TEXT, "python", Lines(4, 5)).kind == "lines"


def test_lines_work_with_every_line_end_and_without_a_language() -> None:
    assert _text(Lines(2, 3), "a\r\nb\rc\nd", "") == "b\rc"
    assert _text(Lines(4, 4), "a\r\nb\rc\nd", "") == "d"


def test_a_symbol_is_found_by_its_name() -> None:
    assert _text(Symbol("Shelf.take")) == "    def take(self):\n        return 2"
    assert _text(Symbol("Shelf.count")) == "    def count(self):\n        return 1"


def test_an_unknown_symbol_is_answered_with_the_nearest_names() -> None:
    error = _error(Symbol("Shelf.tale"))
    assert error.code == "no_symbol"
    assert "no function or class named Shelf.tale" in error.message
    assert "Did you mean take?" in error.message
    assert "Did you mean" not in _error(Symbol("zzzzzz")).message
    assert "Did you mean" not in _error(Symbol("limits")).message  # a variable is no symbol


def test_an_ambiguous_symbol_is_answered_with_its_lines() -> None:
    error = _error(Symbol("count"))
    assert error.code == "ambiguous_symbol"
    assert "at lines 4, 11" in error.message


@pytest.mark.parametrize(
    ("target", "code", "words"),
    [
        (At(14), "no_span", "line 14"),
        (At(16), "line_past_end", "the file has 15 lines"),
        (Lines(3, 99), "line_past_end", "no line 99"),
        (Lines(9, 10), "empty_selection", "white space"),
    ],
)
def test_what_is_not_there_is_said(target: Target, code: str, words: str) -> None:
    error = _error(target)
    assert error.code == code
    assert words in error.message


def test_a_file_of_an_unknown_language_is_told_to_use_lines() -> None:
    error = _error(At(3), language="")
    assert error.code == "no_span"
    assert "does not know the language" in error.message
    assert "--lines" in error.message
    assert "does not know the language" in _error(Symbol("count"), language="").message


def test_every_example_has_its_symbol_and_a_sensible_size() -> None:
    tasks = json.loads((EXAMPLES / "instructions.json").read_text(encoding="utf-8"))
    files = {p.name for p in EXAMPLES.iterdir() if p.suffix not in {".md", ".json"} and p.is_file()}
    assert set(tasks) == files
    assert {language_of(name) for name in files} == {
        "python",
        "typescript",
        "go",
        "rust",
        "java",
        "c",
    }
    for name, task in tasks.items():
        text = (EXAMPLES / name).read_text(encoding="utf-8")
        assert 40 <= len(text.splitlines()) <= 120, name
        assert len(spans_named(text, language_of(name), task["symbol"])) == 1, name


def test_the_demos_function_is_long_enough_to_show_the_drafts() -> None:
    text = (EXAMPLES / "inventory.py").read_text(encoding="utf-8")
    assert 45 <= len(_text(Symbol("apply_movements"), text).splitlines()) <= 60
