"""Hunks as lines for people, and two texts as a unified diff for programs. Pure."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from lsp_server.core import Hunk
from lsp_server.text.positions import LineIndex

_CONTEXT = 3
_LINE_END = re.compile(r"\r\n|\r|\n")


class LineEdit(NamedTuple):
    """Whole lines, without their line ends, that are replaced.

    Attributes:
        old_line, new_line: 1-based number of the first line, before and after.
        old, new: the lines before and after; one of them may be empty.
    """

    old_line: int
    new_line: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def line_edits(text: str, lines: LineIndex, hunks: Iterable[Hunk]) -> list[LineEdit]:
    """Widen hunks of `text` to whole lines, without lines that are equal on both sides."""
    edits: list[LineEdit] = []
    moved = 0
    for hunk in hunks:
        first = lines.line_of(hunk.start)
        start, end = lines.line_start(first), lines.line_end(lines.line_of(hunk.end))
        old = _LINE_END.split(text[start:end])
        new = _LINE_END.split(text[start : hunk.start] + hunk.new_text + text[hunk.end : end])
        head = _common(old, new)
        tail = _common(old[head:][::-1], new[head:][::-1])
        old, new = old[head : len(old) - tail], new[head : len(new) - tail]
        number = first + head + 1
        edits.append(LineEdit(number, number + moved, tuple(old), tuple(new)))
        moved += len(new) - len(old)
    return edits


def unified_diff(path: str, old: str, new: str) -> str:
    r"""A diff that `patch` and `git apply` read; empty when the texts are equal.

    Lines are cut at `\n` only, as those programs do, so a `\r` stays part of its line.

    Args:
        path: the file's path; below the current folder it is given relative to it.
        old: the whole file before, a byte-order mark included.
        new: the whole file after.
    """
    if old == new:
        return ""
    before, after = _cut(old), _cut(new)
    # Only the lines between the first and the last difference can need a search.
    head = max(_common(before, after) - _CONTEXT, 0)
    tail = max(_common(before[head:][::-1], after[head:][::-1]) - _CONTEXT, 0)
    before, after = before[head : len(before) - tail], after[head : len(after) - tail]
    name = _shown_path(path)
    out = [f"--- {_quoted('a/' + name)}\n", f"+++ {_quoted('b/' + name)}\n"]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        out.append(_header(group, head))
        for tag, a1, a2, b1, b2 in group:
            if tag == "equal":
                out.extend(_marked(" ", before[a1:a2]))
                continue
            out.extend(_marked("-", before[a1:a2]))
            out.extend(_marked("+", after[b1:b2]))
    return "".join(out)


def _header(group: Sequence[tuple[str, int, int, int, int]], head: int) -> str:
    old = _range(group[0][1] + head, group[-1][2] + head)
    new = _range(group[0][3] + head, group[-1][4] + head)
    return f"@@ -{old} +{new} @@\n"


def _range(start: int, stop: int) -> str:
    count = stop - start
    # An empty range is named by the line before it.
    return f"{start + 1 if count else start},{count}"


def _marked(mark: str, lines: Iterable[str]) -> Iterable[str]:
    for line in lines:
        yield mark + (line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")


def _cut(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    count = 0
    for left, right in zip(a, b, strict=False):
        if left != right:
            break
        count += 1
    return count


def _shown_path(path: str) -> str:
    full, here = Path(os.path.abspath(path)), Path.cwd()
    return full.relative_to(here).as_posix() if full.is_relative_to(here) else full.name


def _quoted(name: str) -> str:
    """Names as `git diff` writes them: a tab ends one with blanks, odd ones are C strings."""
    if re.search(r'[\x00-\x1f"\\\x7f]', name):
        data = name.encode("utf-8", "surrogateescape")
        plain = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in data)
        return '"' + "".join(plain) + '"'
    return name + "\t" if " " in name else name
