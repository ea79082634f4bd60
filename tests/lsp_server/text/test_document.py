import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.text import document as document_module
from lsp_server.text.document import AppliedChange, Change, Document, least_change
from lsp_server.text.positions import LinePosition

from .texts import encodings, hard_texts


class Editor:
    """An editor's buffer: code units of its encoding, in lines, edited by line and column."""

    def __init__(self, text: str, encoding: str) -> None:
        self.codec = encoding if encoding == "utf-8" else f"{encoding}-le"
        self.size = {"utf-8": 1, "utf-16": 2, "utf-32": 4}[encoding]
        self.units = self.encode(text)

    def encode(self, text: str) -> list[bytes]:
        raw = text.encode(self.codec, "surrogatepass")
        return [raw[at : at + self.size] for at in range(0, len(raw), self.size)]

    def text(self) -> str:
        return b"".join(self.units).decode(self.codec, "surrogatepass")

    def starts(self) -> list[int]:
        """Where in the units a line may be edited: every place that is no half character."""
        places = []
        at = 0
        for char in self.text():
            places.append(at)
            at += len(self.encode(char))
        places.append(at)
        cr, lf = self.encode("\r")[0], self.encode("\n")[0]
        return [at for at in places if self.units[max(at - 1, 0) : at + 1] != [cr, lf]]

    def position(self, at: int) -> LinePosition:
        cr, lf = self.encode("\r")[0], self.encode("\n")[0]
        line = start = index = 0
        while index < at:
            if self.units[index] in (cr, lf):
                index += self.units[index : index + 2] == [cr, lf]
                line, start = line + 1, index + 1
            index += 1
        return LinePosition(line, at - start)

    def replace(self, start: int, end: int, text: str) -> Change:
        change = Change(self.position(start), self.position(end), text)
        self.units[start:end] = self.encode(text)
        return change


# Without lone surrogates: two of them can meet and become one character in the editor.
edited_texts = hard_texts.map(
    lambda text: "".join(c for c in text if not "\ud800" <= c <= "\udfff")
)


@settings(max_examples=100)
@given(edited_texts, encodings, st.data())
def test_the_mirror_follows_any_storm_of_edits(text, encoding, data):
    editor = Editor(text, encoding)
    mirror = Document("file:///a.py", "python", 1, text)
    version = 1
    for _ in range(data.draw(st.integers(1, 4))):
        changes = []
        for _ in range(data.draw(st.integers(1, 4))):
            new = data.draw(edited_texts)
            if data.draw(st.integers(0, 9)) == 0:
                editor.units = editor.encode(new)
                changes.append(Change(None, None, new))
                continue
            places = st.sampled_from(editor.starts())
            start, end = sorted((data.draw(places), data.draw(places)))
            changes.append(editor.replace(start, end, new))
        version += 1
        before = mirror.text
        for applied in mirror.apply(changes, version, encoding):
            before = before[: applied.start] + applied.text + before[applied.end :]
        assert mirror.text == editor.text() == before == mirror.lines.text
        assert mirror.version == version


@given(hard_texts, hard_texts, st.data())
def test_the_least_change_does_the_same_with_no_more_characters(old, new, data):
    start = data.draw(st.integers(0, len(old)))
    end = data.draw(st.integers(start, len(old)))
    least = least_change(old, start, end, new)
    assert old[: least.start] + least.text + old[least.end :] == old[:start] + new + old[end:]
    assert least.end - least.start <= end - start
    assert len(least.text) <= len(new)


@given(hard_texts, st.lists(st.tuples(*[st.integers(-3, 99)] * 4, hard_texts), max_size=5))
def test_no_change_however_wrong_its_range_raises(text, ranges):
    mirror = Document("u", "", 1, text)
    for a, b, c, d, new in ranges:
        mirror.apply([Change(LinePosition(a, b), LinePosition(c, d), new)], 2, "utf-16")
        assert new in mirror.text


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("a\nb\nc", "a\nB\nc", AppliedChange(2, 3, "B")),
        ("a\nb\nc", "a\nb\nc", AppliedChange(5, 5, "")),
        ("x\nfor y\n", "x\nfoo\nfor y\n", AppliedChange(2, 2, "foo\n")),
        ("x\nfoo\nfor y\n", "x\nfor y\n", AppliedChange(2, 6, "")),
        ("x = 1\n", "x = 11\n", AppliedChange(5, 5, "1")),
        ("aa\r\nab", "aa\r\naa\r\nab", AppliedChange(4, 4, "aa\r\n")),
    ],
)
def test_a_replaced_document_is_taken_as_the_lines_that_changed(old, new, expected):
    assert least_change(old, 0, len(old), new) == expected


def test_a_form_feed_line_does_not_move_the_lines_behind_it():
    mirror = Document("u", "python", 1, "\f\nx = 1\n\u2028y = 2\n")
    mirror.apply([Change(LinePosition(2, 5), LinePosition(2, 6), "3")], 2, "utf-16")
    assert mirror.text == "\f\nx = 1\n\u2028y = 3\n"


def test_a_document_that_grows_too_large_is_dropped_until_it_is_replaced_by_a_small_one(
    monkeypatch,
):
    monkeypatch.setattr(document_module, "MAX_DOCUMENT_CHARS", 10)
    start = LinePosition(0, 0)
    mirror = Document("u", "", 1, "0123456789")
    assert not mirror.too_large
    assert mirror.apply([Change(start, start, "x")], 2, "utf-8") == [AppliedChange(0, 10, "")]
    assert (mirror.too_large, mirror.text, mirror.version) == (True, "", 2)
    assert mirror.apply([Change(start, start, "y")], 3, "utf-8") == []
    assert (mirror.too_large, mirror.text, mirror.version) == (True, "", 3)
    assert mirror.apply([Change(None, None, "y" * 11)], 4, "utf-8") == []
    assert mirror.too_large
    changes = [Change(None, None, "ab"), Change(start, start, "c")]
    assert mirror.apply(changes, 5, "utf-8") == [
        AppliedChange(0, 0, "ab"),
        AppliedChange(0, 0, "c"),
    ]
    assert (mirror.too_large, mirror.text) == (False, "cab")


def test_a_document_opened_too_large_keeps_no_text():
    mirror = Document("u", "", 7, "x" * (document_module.MAX_DOCUMENT_CHARS + 1))
    assert (mirror.too_large, mirror.text, mirror.version) == (True, "", 7)
