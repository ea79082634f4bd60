r"""Indentation of an answer, put right while it streams.

A model often answers with the code moved to the left margin, or with spaces where the source has
tabs. `IndentRestorer` gives the answer the source's base indentation and its kind of indentation.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from lsp_server.text.line_ends import to_lf

DEFAULT_UNIT = 4


class IndentRestorer:
    r"""Takes an answer in pieces (line ends `\n`) and gives it back indented like the source.

    The base indentation of a text is that of its first non-blank line.

    - The same base, and the same kind of indentation: the answer passes through unchanged.
    - Another base: every line that begins with the answer's base gets the source's instead. A
      line indented less gets what the source's base has more, or, where that has less, keeps
      what it has. Blank lines stay as they are.
    - Only the first line lost its indentation: only that line is changed. This shows in the
      second line, when it is a line of the source as it stands.
    - The source indents with tabs alone and the answer's first deeper line with spaces, or the
      other way round: the indentation beyond the base is turned into the source's kind. The
      answer's unit is taken from that line: 2 for two or three spaces, else 4, so that a
      continuation line of 6 or 8 does not undo the lines after it.
    - A line that the source has left of its own base, such as the text of a string, stays as
      it is.

    The same answer gives the same text however it is cut into pieces. Until it is certain that
    an answer passes through, whole lines are held back, two at the very start.
    """

    def __init__(self, source: str) -> None:
        lines = [line for line in to_lf(source).split("\n") if line.strip()]
        self._lines = frozenset(lines)
        self._base = indent_of(lines[0]) if lines else ""
        self._outside = frozenset(line for line in lines if not line.startswith(self._base))
        self._kind = indent_kind(lines)
        self._unit = "\t" if self._kind == "\t" else " " * space_unit(lines)
        self._pending = ""  # an unfinished line
        self._first = ""  # lines up to the first non-blank one, while it waits for the second
        self._answer_base: str | None = None
        self._waiting = False
        self._first_alone = False
        self._converts: bool | None = None if self._kind else False
        self._answer_unit = 0

    def feed(self, text: str) -> str:
        """Take the next piece of the answer and return what is certain by now."""
        if self._passes_through:
            return text
        *lines, self._pending = (self._pending + text).split("\n")
        result = ""
        for number, line in enumerate(lines):
            result += self._line(line, "\n")
            if self._passes_through:
                result += "\n".join((*lines[number + 1 :], self._pending))
                self._pending = ""
                break
        return result

    def close(self) -> str:
        """Return what was held back, the answer being over."""
        pending, self._pending = self._pending, ""
        result = self._line(pending, "") if pending else ""
        result += self._release_first()
        return result

    @property
    def _passes_through(self) -> bool:
        return (
            self._answer_base is not None
            and (self._first_alone or self._answer_base == self._base)
            and self._converts is False
        )

    def _line(self, line: str, line_end: str) -> str:
        """Return the line as it is to be, with what was held back before it."""
        if not line.strip():
            if self._waiting:
                self._first += line + line_end
                return ""
            return line + line_end
        if self._answer_base is None:
            self._answer_base = indent_of(line)
            self._waiting = self._answer_base != self._base
            if self._waiting:
                self._first = line + line_end
                return ""
        elif self._waiting:
            self._first_alone = self._stands(line)
            return self._release_first() + self._changed(line) + line_end
        return self._changed(line) + line_end

    def _release_first(self) -> str:
        if not self._waiting:
            return ""
        self._waiting = False
        first, line_end, blank = self._first.partition("\n")
        code = self._base + first[len(self._answer_base or "") :]
        return code + line_end + blank

    def _stands(self, second: str) -> bool:
        """Whether the second line is in the source as it stands, and not also when shifted."""
        if second not in self._lines or not second.startswith(self._base):
            return False
        base = self._answer_base or ""
        shifted = self._base + second[len(base) :] if second.startswith(base) else ""
        return shifted not in self._lines

    def _changed(self, line: str) -> str:
        if line in self._outside:
            return line
        indent = indent_of(line)
        base = self._base if self._first_alone else self._answer_base or ""
        if indent.startswith(base):
            return self._base + self._converted(indent, len(base)) + line[len(indent) :]
        missing = len(self._base) - len(base)
        return self._base[:missing] + line if missing > 0 else line

    def _converted(self, indent: str, base: int) -> str:
        """Return what the line's indentation has beyond the base, in the source's kind."""
        deeper = indent[base:]
        if self._converts is None and (len(deeper) > 1 or "\t" in deeper):
            # With tabs in its base the answer indents with tabs, and spaces behind them align.
            self._converts = ("\t" in indent) != (self._kind == "\t")
            self._answer_unit = 2 if len(deeper) < DEFAULT_UNIT else DEFAULT_UNIT
        if not self._converts:
            return deeper
        if self._kind == " ":
            return deeper.replace("\t", self._unit)
        if "\t" in deeper:
            return deeper
        units, rest = divmod(len(deeper), self._answer_unit)
        return self._unit * units + " " * rest


def indent_of(line: str) -> str:
    """Return the spaces and tabs that the line begins with."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def indent_kind(lines: list[str]) -> str:
    r"""Return `\t` or a space when the non-blank lines indent with that alone, else nothing.

    One space alone says nothing: ` * ` in a comment is indented so in any kind of file.
    """
    indents = [indent_of(line) for line in lines]
    tabs = any("\t" in indent for indent in indents)
    spaces = any(indent.startswith("  ") for indent in indents)
    if tabs == spaces:
        return ""
    return "\t" if tabs else " "


def space_unit(lines: list[str]) -> int:
    """Return by how many spaces the lines go deeper, most often, of 2, 4 and 8; else 4."""
    depths = [len(indent_of(line)) for line in lines]
    steps = Counter(b - a for a, b in pairwise(depths))
    most = max((2, 4, 8), key=lambda unit: steps[unit])
    return most if steps[most] else DEFAULT_UNIT
