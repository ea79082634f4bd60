"""The mirror of one open document, kept in step with the editor change by change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lsp_server.text.positions import Encoding, LineIndex, LinePosition

MAX_DOCUMENT_CHARS = 2_000_000


class Change(NamedTuple):
    """One change as the editor sends it.

    Attributes:
        start, end: the replaced range, in the text after the change before it; both None when
            the whole document is replaced.
        text: what the range holds from now on.
    """

    start: LinePosition | None
    end: LinePosition | None
    text: str


class AppliedChange(NamedTuple):
    """A change in character offsets of the text before it: `[start, end)` became `text`.

    It says the least that happened: what the old and the new text have in common at either
    side is left out, and lines put in or taken out begin at a line's start where they can.
    """

    start: int
    end: int
    text: str


class Document:
    """One open document.

    Attributes:
        uri, language_id: as the editor gave them.
        version: the editor's number for this text.
        text: the whole text with its own line ends; empty when it is too large.
        too_large: the text has passed MAX_DOCUMENT_CHARS and was dropped. Changes to parts of
            it are passed over until a replacement of the whole makes it small again.
    """

    __slots__ = ("_lines", "language_id", "text", "too_large", "uri", "version")

    def __init__(self, uri: str, language_id: str, version: int, text: str) -> None:
        self.uri = uri
        self.language_id = language_id
        self.version = version
        self.too_large = len(text) > MAX_DOCUMENT_CHARS
        self.text = "" if self.too_large else text
        self._lines: LineIndex | None = None

    @property
    def lines(self) -> LineIndex:
        """The line index of the current text."""
        if self._lines is None:
            self._lines = LineIndex(self.text)
        return self._lines

    def apply(
        self, changes: Iterable[Change], version: int, encoding: Encoding
    ) -> list[AppliedChange]:
        """Apply changes in sequence, each in the text after the one before.

        Never raises: places outside the text are moved into it as LSP says.

        Returns:
            What happened to the text, in sequence; changes that changed nothing are left out.
        """
        self.version = version
        applied = (self._apply_one(change, encoding) for change in changes)
        return [change for change in applied if change is not None]

    def _apply_one(self, change: Change, encoding: Encoding) -> AppliedChange | None:
        if change.start is None or change.end is None:
            start, end = 0, len(self.text)
            self.too_large = False
        elif self.too_large:
            return None
        else:
            start, end = sorted(
                (self.lines.offset(change.start, encoding), self.lines.offset(change.end, encoding))
            )
        if len(self.text) - (end - start) + len(change.text) > MAX_DOCUMENT_CHARS:
            dropped = AppliedChange(0, len(self.text), "")
            self.too_large, self.text, self._lines = True, "", None
            return dropped if dropped.end else None
        applied = least_change(self.text, start, end, change.text)
        if applied.start == applied.end and not applied.text:
            return None
        self._lines = self.lines.replaced(*applied)
        self.text = self._lines.text
        return applied


def least_change(old: str, start: int, end: int, text: str) -> AppliedChange:
    r"""Return the smallest change that does to `old` what replacing `[start, end)` by `text` does.

    Editors send more than was typed (a formatter replaces the file) or elsewhere than it was
    typed: a line `foo` put above `for` may come as `o\nfo` put in after `fo`. Lines put in or
    taken out from the middle of a line on are therefore moved back to that line's start where
    the result is the same, so that they do not seem to touch the line that they only precede.
    """
    ahead = common_prefix(old[start:end], text)
    start, text = start + ahead, text[ahead:]
    behind = common_prefix(old[start:end][::-1], text[::-1])
    end, text = end - behind, text[: len(text) - behind]
    if start != end and text:
        return AppliedChange(start, end, text)
    moved_text = text or old[start:end]
    line_start = max(old.rfind("\n", 0, start), old.rfind("\r", 0, start)) + 1
    head = old[line_start:start]
    if not head or not moved_text.endswith(head):
        return AppliedChange(start, end, text)
    kept = moved_text[: len(moved_text) - len(head)]
    if not kept.endswith(("\n", "\r")):
        return AppliedChange(start, end, text)
    return AppliedChange(line_start, end - len(head), head + kept if text else "")


def common_prefix(a: str, b: str) -> int:
    """Return the number of equal characters at the start; halving leaves the work to C."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
