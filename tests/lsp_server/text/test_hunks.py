import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.core import Hunk, Span
from lsp_server.text.alignment import changed_regions
from lsp_server.text.hunks import HunkStream, apply_hunks, final_hunks, span_text_with
from lsp_server.text.line_ends import dominant_line_end, to_lf

from .texts import LINE_ENDS, cut

# Few different lines, so that they repeat and alignments are ambiguous.
LINES = ("", "a", "b", "b ", "    return total", "}", "def first(self):", "\f", "x = '\u2028'")
new_texts = st.lists(st.sampled_from(LINES), max_size=12).map("\n".join)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, Span]:
    """A document with mixed line ends and a span of whole lines in it."""
    lines = draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=12))
    ends = [draw(st.sampled_from(LINE_ENDS)) for _ in lines]
    first = draw(st.integers(0, len(lines) - 1))
    last = draw(st.integers(first, len(lines) - 1))
    if draw(st.booleans()):
        ends[-1] = ""
    text = "".join(line + end for line, end in zip(lines, ends, strict=True))
    start = sum(len(line) + len(end) for line, end in zip(lines[:first], ends[:first], strict=True))
    size = sum(map(len, [*lines[first : last + 1], *ends[first:last]]))
    with_end = draw(st.booleans())
    return text, Span(start, start + size + (len(ends[last]) if with_end else 0), "lines", "")


def common_length(a: list[str], b: list[str]) -> int:
    """The length of a longest common subsequence, by the textbook table."""
    row = [0] * (len(b) + 1)
    for line in a:
        above = row[:]
        for at, other in enumerate(b):
            row[at + 1] = above[at] + 1 if line == other else max(above[at + 1], row[at])
    return row[-1]


def pieces(text: str) -> list[str]:
    return re.split("\r\n|\n|\r", text)


@settings(max_examples=120)
@given(documents(), new_texts)
def test_applying_all_hunks_gives_the_document_with_the_new_text_in_the_span(document, new):
    text, span = document
    hunks = final_hunks(text, span, new)
    after = apply_hunks(text, hunks)
    changed = span_text_with(text, span, hunks)
    assert after == text[: span.start] + changed + text[span.end :]
    assert to_lf(changed) == new
    for before, hunk in zip((None, *hunks), hunks, strict=False):
        assert hunk.old_text == text[hunk.start : hunk.end] != hunk.new_text
        assert span.start <= hunk.start <= hunk.end <= span.end
        assert before is None or before.end < hunk.start
    assert [hunk.id for hunk in hunks] == [f"h{n + 1}" for n in range(len(hunks))]
    assert (hunks == ()) == (to_lf(text[span.start : span.end]) == new)


@settings(max_examples=120)
@given(documents(), new_texts)
def test_hunks_take_out_and_put_in_as_few_lines_as_can_be(document, new):
    text, span = document
    old_lines, new_lines = pieces(text[span.start : span.end]), new.split("\n")
    regions = changed_regions(old_lines, new_lines)
    cost = sum(r.old_end - r.old_start + r.new_end - r.new_start for r in regions)
    assert cost == len(old_lines) + len(new_lines) - 2 * common_length(old_lines, new_lines)


@settings(max_examples=100)
@given(documents(), new_texts)
def test_line_ends_that_stay_are_kept_and_new_ones_are_the_usual_one(document, new):
    text, span = document
    inside = text[span.start : span.end]
    usual = dominant_line_end(inside if pieces(inside)[1:] else text)
    for hunk in final_hunks(text, span, new):
        ends = set(re.findall("\r\n|\n|\r", hunk.new_text))
        assert ends <= {usual}


@settings(max_examples=100)
@given(documents(), new_texts, st.data())
def test_any_subset_of_hunks_can_be_applied_in_any_sequence(document, new, data):
    text, span = document
    hunks = final_hunks(text, span, new)
    chosen = data.draw(st.permutations([hunk for hunk in hunks if data.draw(st.booleans())]))
    expected = text
    for hunk in sorted(chosen, key=hunks.index, reverse=True):
        expected = expected[: hunk.start] + hunk.new_text + expected[hunk.end :]
    assert apply_hunks(text, chosen) == expected


@settings(max_examples=100)
@given(documents(), new_texts, st.data())
def test_streamed_hunks_never_change_and_the_end_is_the_final_diff(document, new, data):
    text, span = document
    stream = HunkStream(text, span)
    shown: tuple[Hunk, ...] = ()
    settled = span.start
    so_far = ""
    for piece in data.draw(cut(new)):
        so_far += piece
        update = stream.update(so_far)
        assert update.new_text == so_far
        assert update.hunks[: len(shown)] == shown
        assert span.start <= settled <= update.settled <= span.end
        assert all(hunk.end <= update.settled for hunk in update.hunks)
        assert all(hunk.start >= settled for hunk in update.hunks[len(shown) :])
        shown, settled = update.hunks, update.settled
    # What is settled says what the new text says at its beginning.
    begun = to_lf(apply_hunks(text, shown)[span.start :])
    grown = sum(len(to_lf(h.new_text)) - len(to_lf(h.old_text)) for h in shown)
    length = len(to_lf(text[span.start : settled])) + grown
    assert begun[:length] == new[:length]
    final = stream.finish(new)
    expected = final_hunks(text, span, new)
    assert [h._replace(id="") for h in final] == [h._replace(id="") for h in expected]
    assert len({h.id for h in final}) == len(final)
    known = {h.id: h for h in shown}
    assert all(known.get(h.id, h) == h for h in final)
    assert all(
        h.id in known for h in final if h._replace(id="") in {k._replace(id="") for k in shown}
    )


@given(st.text(max_size=30), st.integers(-3, 40), st.integers(-3, 40), st.text(max_size=20))
def test_any_text_span_and_answer_are_taken(text, start, end, new):
    hunks = final_hunks(text, Span(start, end), new)
    start = min(max(start, 0), len(text))
    end = min(max(end, start), len(text))
    assert to_lf(span_text_with(text, Span(start, end), hunks)) == to_lf(new)
    stream = HunkStream(text, Span(start, end))
    stream.update(new)
    assert apply_hunks(text, stream.finish(new)) == apply_hunks(text, hunks)


def changes(old: str, new: str) -> list[tuple[str, str]]:
    return [(h.old_text, h.new_text) for h in final_hunks(old, Span(0, len(old)), new)]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a\nb\nc", "a\nB\nc", [("b", "B")]),
        ("a\r\nb\r\nc", "a\nB\nc", [("b", "B")]),
        ("a\nb\nc", "a\nc", [("b\n", "")]),
        ("a\nc", "a\nb\nc", [("", "b\n")]),
        ("a\r\nc", "a\nb\nc", [("", "b\r\n")]),
        ("a\nb", "a\nb\nc", [("", "\nc")]),
        ("a\r\nb", "a\nb\nc", [("", "\r\nc")]),
        ("a\nb\nc", "a\nb", [("\nc", "")]),
        ("a\nb", "a\nb\n", [("", "\n")]),
        ("a\nb\n", "a\nb", [("\n", "")]),
        ("a\nb", "a \nb", [("a", "a ")]),
        ("a", "", [("a", "")]),
        ("", "a\nb", [("", "a\nb")]),
        ("a\r\nb\r\n", "a\nb\n", []),
        ("", "a\n\nb", [("", "a\n\nb")]),
        ("a\n\nb", "", [("a\n\nb", "")]),
        ("a\rb\nc\nd", "x\nb\nc\ny\nd", [("a", "x"), ("", "y\n")]),
        ("a\nb\nc\nd\ne", "A\nb\nC\nd\nE", [("a", "A"), ("c", "C"), ("e", "E")]),
        ("f1\n}\nf2\n}", "f1\n}\nf9\n}\nf2\n}", [("", "f9\n}\n")]),
    ],
)
def test_hunks_are_whole_lines_with_the_documents_line_ends(old, new, expected):
    assert changes(old, new) == expected


def test_a_line_end_is_taken_from_the_document_when_the_span_has_none():
    text = "a\r\nb\r\nc"
    (hunk,) = final_hunks(text, Span(3, 4), "x\ny")
    assert hunk == Hunk("h1", 3, 4, "b", "x\r\ny")


def test_hunks_for_another_text_or_overlapping_ones_are_refused():
    hunks = final_hunks("a\nb", Span(0, 3), "a\nc")
    with pytest.raises(ValueError, match="h1 was made for another text"):
        apply_hunks("a\nx", hunks)
    with pytest.raises(ValueError, match="h1 overlaps"):
        apply_hunks("a\nb", [*hunks, *hunks])


def test_a_hunk_settles_with_the_unchanged_line_behind_it_and_keeps_its_id():
    text = "def first():\n    one = 1\n    two = 2\n    return one\n"
    new = "def first():\n    one = 9\n    two = 2\n    return two\n"
    stream = HunkStream(text, Span(0, len(text)))
    assert stream.update("def first():\n    one = 9\n    two").hunks == ()
    update = stream.update("def first():\n    one = 9\n    two = 2\n")
    assert update.hunks == (Hunk("h1", 13, 24, "    one = 1", "    one = 9"),)
    assert update.settled == text.index("\n    return one")
    assert [(hunk.id, hunk.new_text) for hunk in stream.finish(new)] == [
        ("h1", "    one = 9"),
        ("h2", "    return two"),
    ]


def test_a_brace_or_a_blank_line_is_no_proof_that_the_alignment_is_right():
    text = "begin first\n\nmiddle line\n}\nlast line\n"
    stream = HunkStream(text, Span(0, len(text)))
    so_far = "begin first\nsomething new\n\n"
    assert stream.update(so_far).hunks == ()
    so_far += "something else\n}\n"
    assert stream.update(so_far).hunks == ()
    so_far += "last line\n"
    assert apply_hunks(text, stream.update(so_far).hunks) == so_far


def test_a_long_deletion_needs_more_than_one_line_behind_it():
    text = "".join(f"line number {n}\n" for n in range(20))
    stream = HunkStream(text, Span(0, len(text)))
    assert stream.update("line number 0\nline number 9\n").hunks == ()
    update = stream.update("line number 0\nline number 9\nline number 10\n")
    (hunk,) = update.hunks
    assert hunk.old_text == "".join(f"line number {n}\n" for n in range(1, 9))


def test_half_a_line_end_is_not_taken_for_a_line():
    text = "first line\nsecond line\nthird line"
    stream = HunkStream(text, Span(0, len(text)))
    for so_far in ("one line\r", "one line\r\n", "one line\r\nsecond line\r\n"):
        update = stream.update(so_far)
    assert update.hunks == (Hunk("h1", 0, 10, "first line", "one line"),)


def test_a_text_that_does_not_go_on_from_the_last_changes_nothing_before_the_end():
    stream = HunkStream("one one\ntwo two\nthree", Span(0, 21))
    before = stream.update("ONE\ntwo two\n")
    assert stream.update("another\n") == before._replace(new_text="another\n")
    (hunk,) = stream.finish("one one\ntwo two\n3")
    assert (hunk.id, hunk.new_text) == ("h2", "3")


@given(st.lists(st.sampled_from("ab"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
def test_past_the_bound_on_pairs_the_diff_is_still_right(old, new):
    regions = changed_regions(old, new, max_pairs=20)
    rebuilt, at = [], 0
    for region in regions:
        assert region.old_start >= at
        rebuilt += old[at : region.old_start] + new[region.new_start : region.new_end]
        at = region.old_end
    assert rebuilt + old[at:] == new


def test_six_hundred_updates_of_six_hundred_lines_take_less_than_a_second():
    old = [f"    value_{n} = compute({n % 50})" if n % 5 else "" for n in range(600)]
    new = [line.replace("value", "result") if n % 7 == 0 else line for n, line in enumerate(old)]
    new[300:300] = [f"    # new line {n}" for n in range(100)]
    text, answer = "\n".join(old), "\n".join(new)
    stream = HunkStream(text, Span(0, len(text)))
    begin = time.process_time()
    update = stream.update("")
    for part in range(1, 601):
        update = stream.update(answer[: len(answer) * part // 600])
    final = stream.finish(answer)
    assert time.process_time() - begin < 1
    assert apply_hunks(text, final) == answer
    assert final[: len(update.hunks)] == update.hunks
    assert len(update.hunks) > 60


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["x", "y"] * 5000, ["y", "y", "x"] * 5000),
        ([f"old {n}" for n in range(5000)], [f"new {n}" for n in range(5000)]),
        ([str(n) for n in range(5000)], [str(n) for n in reversed(range(5000))]),
    ],
)
def test_large_and_hostile_texts_are_done_in_bounded_time(old, new):
    text, answer = "\n".join(old), "\n".join(new)
    begin = time.process_time()
    stream = HunkStream(text, Span(0, len(text)))
    for part in range(1, 101):
        stream.update(answer[: len(answer) * part // 100])
    assert apply_hunks(text, stream.finish(answer)) == answer
    assert time.process_time() - begin < 5


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\rx\nb", "a\n\nb"),
        ("a\rx\nb", "a\n\n\nb"),
        ("a\rx\ny\nb", "a\n\nb"),
        ("a\rb\rx\n\nc", "a\nb\ny\n\n\nc"),
        ("a\rb\rx\nc", "a\nb\ny\n\nc"),
        ("a\nx\rb\nc", "a\n\nb\nc"),
    ],
)
def test_mixed_line_ends_that_come_to_stand_side_by_side_stay_two(old: str, new: str) -> None:
    document = f"top\n{old}\nbottom"
    span = Span(4, 4 + len(old))
    assert to_lf(apply_hunks(document, final_hunks(document, span, new))) == f"top\n{new}\nbottom"
