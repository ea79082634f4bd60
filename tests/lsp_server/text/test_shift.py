import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.core import Span
from lsp_server.text.document import AppliedChange
from lsp_server.text.shift import shift_span

from .texts import hard_texts

#          0123456789
# span:      [2, 6)
SPAN = Span(2, 6, "function", "f")


@pytest.mark.parametrize(
    ("case", "change", "expected"),
    [
        ("put in before", (0, 0, "ab"), (4, 8)),
        ("taken out before", (0, 1, ""), (1, 5)),
        ("replaced before", (0, 1, "abc"), (4, 8)),
        ("whole lines put in at the start", (2, 2, "a\n"), (4, 8)),
        ("whole lines put in at the start, CRLF", (2, 2, "a\r\n"), (5, 9)),
        ("whole lines put in at the start, CR", (2, 2, "a\r"), (4, 8)),
        ("typed at the start", (2, 2, "a"), None),
        ("a line end and more put in at the start", (2, 2, "\na"), None),
        ("taken out up to the start", (0, 2, ""), (0, 4)),
        ("lines replaced up to the start", (0, 2, "abc\n"), (4, 8)),
        ("replaced up to the start without a line end", (0, 2, "abc"), None),
        ("put in inside", (3, 3, "a"), None),
        ("put in inside, whole lines", (3, 3, "a\n"), None),
        ("replaced inside", (3, 5, "a"), None),
        ("taken out inside", (3, 4, ""), None),
        ("replaced from the start on", (2, 3, "a"), None),
        ("replaced up to the end", (5, 6, "a"), None),
        ("the whole span replaced", (2, 6, "a"), None),
        ("overlapping the start", (1, 3, "a\n"), None),
        ("overlapping the end", (5, 8, ""), None),
        ("around", (1, 7, ""), None),
        ("put in at the end", (6, 6, "a"), (2, 6)),
        ("whole lines put in at the end", (6, 6, "\na"), (2, 6)),
        ("replaced from the end on", (6, 8, "a"), (2, 6)),
        ("after", (7, 9, "abc"), (2, 6)),
        ("nothing, inside", (4, 4, ""), (2, 6)),
    ],
)
def test_the_span_moves_stays_or_is_touched(case, change, expected):
    shifted = shift_span(SPAN, AppliedChange(*change))
    assert shifted == (
        None if expected is None else SPAN._replace(start=expected[0], end=expected[1])
    )


@pytest.mark.parametrize(("text", "expected"), [("a\n", (4, 4)), ("a", None)])
def test_text_at_an_empty_span_counts_as_put_in_at_its_start(text, expected):
    shifted = shift_span(Span(2, 2), AppliedChange(2, 2, text))
    assert shifted == (expected and Span(*expected))


@given(hard_texts, hard_texts, st.data())
def test_a_shifted_span_holds_the_text_it_held(text, new, data):
    places = st.integers(0, len(text))
    start, end = sorted((data.draw(places), data.draw(places)))
    change_start, change_end = sorted((data.draw(places), data.draw(places)))
    shifted = shift_span(Span(start, end), AppliedChange(change_start, change_end, new))
    after = text[:change_start] + new + text[change_end:]
    if shifted is None:
        assert change_start <= end
        assert change_end >= start
    else:
        assert after[shifted.start : shifted.end] == text[start:end]
