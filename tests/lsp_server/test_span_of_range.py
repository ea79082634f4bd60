from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.core import RewriteError
from lsp_server.spans import span_of_range


@pytest.mark.parametrize(
    ("text", "start", "end", "expected"),
    [
        ("a\nbcd\ne\n", 3, 4, "bcd"),
        ("a\nbcd\ne\n", 2, 6, "bcd"),
        ("a\nbcd\ne\n", 3, 3, "bcd"),
        ("a\nbcd\ne\n", 0, 2, "a"),
        ("a\nbcd\ne\n", 4, 1, "a\nbcd"),
        ("a\r\nbcd\r\ne\r\n", 4, 8, "bcd"),
        ("a\r\nbcd\r\ne\r\n", 3, 7, "bcd"),
        ("a\rbcd\re", 2, 6, "bcd"),
        ("a\n\n  b\n \n\nc", 1, 9, "a\n\n  b"),
        ("a\n\n  b\n \n\nc", 2, 10, "  b"),
        ("\ta\n\tb", 1, 99, "\ta\n\tb"),
        ("x\u2028y\nz", 0, 1, "x\u2028y"),
        ("a\nb", -4, 1, "a"),
    ],
)
def test_a_range_is_widened_to_whole_lines(text: str, start: int, end: int, expected: str) -> None:
    span = span_of_range(text, start, end)
    assert text[span.start : span.end] == expected
    assert span.kind == "selection"


@pytest.mark.parametrize(("text", "start", "end"), [("", 0, 0), ("a\n \t\n\nb", 2, 5)])
def test_only_white_space_is_refused(text: str, start: int, end: int) -> None:
    with pytest.raises(RewriteError) as error:
        span_of_range(text, start, end)
    assert error.value.code == "empty_selection"


@given(st.text("ab \t\r\n", max_size=30), st.integers(0, 30), st.integers(0, 30))
@settings(max_examples=300, deadline=None)
def test_the_lines_are_whole_and_hold_the_selected_text(text: str, start: int, end: int) -> None:
    start, end = sorted((min(start, len(text)), min(end, len(text))))
    try:
        span = span_of_range(text, start, end)
    except RewriteError:
        assert not text[start:end].strip()
        return
    assert span.start == 0 or text[span.start - 1] in "\r\n"
    assert span.end == len(text) or text[span.end] in "\r\n"
    lines = text[span.start : span.end].replace("\r", "\n").split("\n")
    assert lines[0].strip()
    assert lines[-1].strip()
    outside = text[start : max(start, span.start)] + text[min(end, span.end) : end]
    assert not outside.strip()
    assert span_of_range(text, span.start, span.end) == span
