"""From `--at`, `--lines` or `--symbol` to the span of the file that may change."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import NamedTuple

from lsp_server.core import RewriteError, Span
from lsp_server.spans import span_at, span_of_range, spans_named
from lsp_server.text.positions import LineIndex


class At(NamedTuple):
    """The function or class around a place; 1-based, the column in characters."""

    line: int
    column: int | None = None


class Lines(NamedTuple):
    """Whole lines, 1-based, both included."""

    first: int
    last: int


class Symbol(NamedTuple):
    """A function or class by name: `f`, `Class` or `Class.method`."""

    name: str


Target = At | Lines | Symbol


def parse_at(value: str) -> At:
    """Read `LINE` or `LINE:COL`."""
    match = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", value)
    if match is None or int(match[1]) < 1 or (match[2] and int(match[2]) < 1):
        raise argparse.ArgumentTypeError(f"{value!r} is not LINE or LINE:COL, counted from 1")
    return At(int(match[1]), int(match[2]) if match[2] else None)


def parse_lines(value: str) -> Lines:
    """Read `A-B`, or `A` for a single line."""
    match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", value)
    if match is None:
        raise argparse.ArgumentTypeError(f"{value!r} is not A-B, counted from 1")
    first, last = int(match[1]), int(match[2] or match[1])
    if not 1 <= first <= last:
        raise argparse.ArgumentTypeError(f"{value!r} must count from 1 and upwards")
    return Lines(first, last)


def parse_symbol(value: str) -> Symbol:
    """Read a name; it must not be blank."""
    if not value.strip():
        raise argparse.ArgumentTypeError("the name is empty")
    return Symbol(value.strip())


def find_span(text: str, language: str, target: Target) -> Span:
    """Find the part of `text` that `target` means.

    Args:
        text: the whole file.
        language: LSP language id, or the empty string when not known.
        target: what the user asked for.

    Raises:
        RewriteError: `line_past_end`, `no_span`, `no_symbol`, `ambiguous_symbol` or
            `empty_selection`.
    """
    if isinstance(target, Symbol):
        return _span_of_symbol(text, language, target.name)
    lines = LineIndex(text)
    if isinstance(target, Lines):
        _check_line(lines, text, target.last)
        start, end = lines.line_start(target.first - 1), lines.line_end(target.last - 1)
        return span_of_range(text, start, end)._replace(kind="lines")
    _check_line(lines, text, target.line)
    span = span_at(text, language, _offset(lines, text, target))
    if span is None:
        raise RewriteError(
            "no_span",
            f"There is no function or class at line {target.line}{_unknown(language)}."
            " Use --lines A-B to rewrite lines.",
        )
    return span


def _span_of_symbol(text: str, language: str, name: str) -> Span:
    spans = spans_named(text, language, name)
    if not spans:
        raise RewriteError(
            "no_symbol",
            f"There is no function or class named {name}{_unknown(language)}."
            + _suggestion(text, language, name),
        )
    if len(spans) > 1:
        lines = LineIndex(text)
        numbers = ", ".join(str(lines.line_of(span.start) + 1) for span in spans)
        raise RewriteError(
            "ambiguous_symbol",
            f"{name} is defined {len(spans)} times, at lines {numbers}."
            " Use --at LINE or Class.method to say which.",
        )
    return spans[0]


def _suggestion(text: str, language: str, name: str) -> str:
    """The nearest names that are defined in the file, as a sentence."""
    last = name.rpartition(".")[2]
    words = list(dict.fromkeys(re.findall(r"[^\W\d]\w*", text)))
    nearest = difflib.get_close_matches(last, words, n=12, cutoff=0.5)
    defined = [word for word in nearest if spans_named(text, language, word)][:3]
    if not defined:
        return " Use --at LINE or --lines A-B."
    return f" Did you mean {' or '.join(defined)}?"


def _unknown(language: str) -> str:
    return "" if language else " (redraft does not know the language of this file)"


def _check_line(lines: LineIndex, text: str, line: int) -> None:
    # The empty line after the last line end is a line for editors, not for people.
    count = lines.line_count
    if count > 1 and lines.line_start(count - 1) == len(text):
        count -= 1
    if line > count:
        plural = "line" if count == 1 else "lines"
        raise RewriteError(
            "line_past_end", f"There is no line {line}: the file has {count} {plural}."
        )


def _offset(lines: LineIndex, text: str, at: At) -> int:
    start, end = lines.line_start(at.line - 1), lines.line_end(at.line - 1)
    if at.column is not None:
        return min(start + at.column - 1, end)
    line = text[start:end]
    return start + len(line) - len(line.lstrip())
