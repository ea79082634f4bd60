"""A text as a list of code units of one encoding, as an editor would hold it.

Written apart from the server's text code on purpose, by the slowest plain reading of
the LSP specification, and strict: a position that does not exist is an error here.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Literal

Encoding = Literal["utf-8", "utf-16", "utf-32"]
Place = tuple[int, int]


class InvalidPosition(AssertionError):
    """The server named a place that is not in the text."""


def to_units(text: str, encoding: Encoding) -> list[int]:
    if encoding == "utf-8":
        return list(text.encode("utf-8", "surrogatepass"))
    if encoding == "utf-16":
        data = text.encode("utf-16-le", "surrogatepass")
        return list(struct.unpack(f"<{len(data) // 2}H", data))
    return [ord(character) for character in text]


def from_units(units: list[int], encoding: Encoding) -> str:
    if encoding == "utf-8":
        return bytes(units).decode("utf-8", "surrogatepass")
    if encoding == "utf-16":
        return struct.pack(f"<{len(units)}H", *units).decode("utf-16-le", "surrogatepass")
    return "".join(map(chr, units))


class TextModel:
    """`units` and where its lines begin and end; line ends are \\n, \\r\\n and \\r."""

    def __init__(self, text: str, encoding: Encoding) -> None:
        self.encoding: Encoding = encoding
        self.units = to_units(text, encoding)

    @property
    def text(self) -> str:
        return from_units(self.units, self.encoding)

    def lines(self) -> list[tuple[int, int]]:
        """(start, end) of each line in units, line ends left out."""
        found, start, at = [], 0, 0
        while at < len(self.units):
            unit = self.units[at]
            if unit not in (10, 13):
                at += 1
                continue
            found.append((start, at))
            at += 2 if unit == 13 and self.units[at + 1 : at + 2] == [10] else 1
            start = at
        found.append((start, len(self.units)))
        return found

    def index(self, place: Place) -> int:
        line, character = place
        lines = self.lines()
        if not 0 <= line < len(lines):
            raise InvalidPosition(f"line {line} of {len(lines)}")
        start, end = lines[line]
        if not 0 <= character <= end - start:
            raise InvalidPosition(f"character {character} of {end - start} in line {line}")
        index = start + character
        if index < len(self.units) and self._continues(self.units[index]):
            raise InvalidPosition(f"character {character} in line {line} is inside a character")
        return index

    def _continues(self, unit: int) -> bool:
        if self.encoding == "utf-8":
            return 0x80 <= unit < 0xC0
        return self.encoding == "utf-16" and 0xDC00 <= unit < 0xE000

    def end(self) -> Place:
        lines = self.lines()
        start, end = lines[-1]
        return len(lines) - 1, end - start

    def find(self, wanted: str, after: int = 0) -> Place:
        """The place of the first occurrence of a text, from a unit on."""
        needle = to_units(wanted, self.encoding)
        for at in range(after, len(self.units) - len(needle) + 1):
            if self.units[at : at + len(needle)] == needle:
                return self.place(at)
        raise AssertionError(f"{wanted!r} is not in the text")

    def place(self, index: int) -> Place:
        for line, (start, end) in enumerate(self.lines()):
            if start <= index <= end:
                return line, index - start
        raise AssertionError(f"unit {index} is inside a line end")

    def replace(self, start: Place, end: Place, text: str) -> None:
        first, last = self.index(start), self.index(end)
        assert first <= last, f"range from {start} to {end} runs backwards"
        self.units[first:last] = to_units(text, self.encoding)

    def replace_all(self, edits: list[tuple[Place, Place, str]]) -> None:
        """Several edits in the coordinates of one version, as LSP's TextEdit[] are."""
        found = sorted(((self.index(a), self.index(b), t) for a, b, t in edits), key=lambda e: e[0])
        for (_, end, _), (start, _, _) in pairwise(found):
            assert end <= start, "edits of one version overlap"
        for start, end, text in reversed(found):
            self.units[start:end] = to_units(text, self.encoding)
