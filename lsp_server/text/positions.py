r"""Positions of the Language Server Protocol and offsets of a Python string, both ways.

A line ends at `\n`, `\r\n` or `\r` and at nothing else (LSP 3.17, "Text Documents"): form feed,
U+0085 and U+2028 are ordinary characters, which rules out `str.splitlines`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import Literal, NamedTuple

Encoding = Literal["utf-8", "utf-16", "utf-32"]

LINE_END = re.compile(r"\r\n|\n|\r")


class LinePosition(NamedTuple):
    """A place in a text: zero-based line, and units of the encoding from the line's start."""

    line: int
    character: int


def width(text: str, encoding: Encoding) -> int:
    """Return how many units of `encoding` the text takes; a lone surrogate counts as its own."""
    if encoding == "utf-32" or text.isascii():
        return len(text)
    if encoding == "utf-8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class LineIndex:
    """Where the lines of one text begin. Building is O(n), looking a line up O(log lines)."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0]
        self._starts.extend(match.end() for match in LINE_END.finditer(text))

    @property
    def line_count(self) -> int:
        """At least 1; a text that ends with a line end has an empty last line."""
        return len(self._starts)

    def line_start(self, line: int) -> int:
        """Return the offset of the line's first character; past the last line, the text's end."""
        if line >= len(self._starts):
            return len(self.text)
        return self._starts[max(line, 0)]

    def line_end(self, line: int) -> int:
        """Return the offset after the line's last character, its line end excluded."""
        following = max(line, 0) + 1
        if following >= len(self._starts):
            return len(self.text)
        end = self._starts[following] - 1
        if self.text[end] == "\n" and end > 0 and self.text[end - 1] == "\r":
            return end - 1
        return end

    def line_of(self, offset: int) -> int:
        """Return the line that holds the offset; a line end belongs to the line it ends."""
        return max(bisect_right(self._starts, offset) - 1, 0)

    def offset(self, position: LinePosition, encoding: Encoding) -> int:
        """Return the offset of a position, moved to the nearest valid place before it.

        A character past the line's end means the line's end, a line past the last means the
        text's end, and a place inside a character means that character's start.
        """
        if position.line < 0:
            return 0
        start, end = self.line_start(position.line), self.line_end(position.line)
        units = max(position.character, 0)
        # A character takes at least one unit, so the answer is within the first `units`.
        end = min(end, start + units)
        if encoding == "utf-32" or self.text.isascii():
            return end
        # Halving measures each part of the line once: linear, and in C.
        while start < end:
            middle = (start + end + 1) // 2
            taken = width(self.text[start:middle], encoding)
            if taken <= units:
                start, units = middle, units - taken
            else:
                end = middle - 1
        return start

    def position(self, offset: int, encoding: Encoding) -> LinePosition:
        r"""Return the position of an offset; between `\r` and `\n` means before both."""
        offset = min(max(offset, 0), len(self.text))
        line = self.line_of(offset)
        start = self._starts[line]
        return LinePosition(
            line, width(self.text[start : min(offset, self.line_end(line))], encoding)
        )

    def replaced(self, start: int, end: int, text: str) -> LineIndex:
        """Return the index of this text with `[start, end)` replaced; offsets must be in range.

        Only the lines at the change are searched; the ones after it are moved along, which
        keeps hundreds of small changes in one notification cheap.
        """
        new = LineIndex.__new__(LineIndex)
        new.text = self.text[:start] + text + self.text[end:]
        starts, changed_end, moved = self._starts, start + len(text), len(text) - (end - start)
        # A line start is decided by the characters on its two sides. Before `start` and after
        # `end` both are as they were; from one to the other they must be looked at again.
        new._starts = starts[: bisect_left(starts, start)] or [0]
        for match in LINE_END.finditer(new.text, max(start - 1, 0), changed_end + 1):
            if max(start, 1) <= match.end() <= changed_end:
                new._starts.append(match.end())
        new._starts.extend(line_start + moved for line_start in starts[bisect_right(starts, end) :])
        return new
