import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.text.line_ends import dominant_line_end, to_lf, with_line_end

from .texts import LINE_ENDS, hard_texts


@pytest.mark.parametrize(
    ("text", "line_end"),
    [
        ("", "\n"),
        ("one line", "\n"),
        ("a\nb\n", "\n"),
        ("a\r\nb\r\n", "\r\n"),
        ("a\rb\r", "\r"),
        ("a\r\nb\nc\n", "\n"),
        ("a\r\nb\nc\r\n", "\r\n"),
        ("a\r\nb\n", "\r\n"),
        ("a\nb\r\n", "\n"),
        ("a\rb\nc\r\n", "\r"),
        ("a\u2028b\x85c\r", "\r"),
    ],
)
def test_the_most_frequent_line_end_wins_and_the_first_of_equals(text, line_end):
    assert dominant_line_end(text) == line_end


@given(hard_texts, st.sampled_from(LINE_ENDS))
def test_any_line_end_becomes_lf_and_lf_becomes_any(text, line_end):
    plain = to_lf(text)
    assert "\r" not in plain
    assert plain.count("\n") == text.count("\r") + text.count("\n") - text.count("\r\n")
    assert to_lf(with_line_end(plain, line_end)) == plain
    assert with_line_end(plain, line_end).count(line_end) == plain.count("\n")
    assert to_lf(plain) == plain
