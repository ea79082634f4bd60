"""Spans: which part of a document a rewrite at a position, a name or a range may change."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from lsp_server.core import RewriteError, Span
from lsp_server.definitions import (
    Definition,
    Scope,
    all_definitions,
    definitions_among,
    name_parts,
)
from lsp_server.span_bounds import MOST_COMMENTS, definition_bounds, line_end, line_start
from lsp_server.span_rules import RULES, SpanRules
from lsp_server.syntax import SyntaxTree, parse
from lsp_server.syntax_check import new_syntax_errors

__all__ = ["new_syntax_errors", "span_at", "span_of_range", "spans_named"]

_BLANK = b" \t\f\v"
_REPAIRS = 3
_TRIED_AT_A_POINT = 32


def span_at(text: str, language: str, offset: int) -> Span | None:
    """Return the innermost function or class around a position.

    Its decorators, attributes and the comment block directly above count as inside, and so
    does white space in front of its first line. Functions without a name, such as
    callbacks, belong to what they are in.

    Args:
        text: the whole document.
        language: an LSP language id; None is the answer for one that is not known.
        offset: a character offset; clamped to the text.

    Raises:
        RewriteError: `grammar_missing` or `parse_timeout`: only a selection works.
    """
    rules = RULES.get(language)
    if rules is None:
        return None
    answer: Span | None = None
    for _ in range(_REPAIRS):
        tree = parse(text, language)
        best, broken = _innermost(tree, language, rules, tree.byte_offset(offset))
        if best is not None and (
            answer is None or best.end - best.start < answer.end - answer.start
        ):
            answer = best
        if broken is None:
            break
        # A definition with a syntax error had swallowed this place: look again without it.
        start, end = (tree.char_offset(bound) for bound in broken)
        blanked = "".join(char if char in "\r\n" else " " for char in text[start:end])
        text = text[:start] + blanked + text[end:]
    return answer


def spans_named(text: str, language: str, name: str) -> list[Span]:
    """Return the spans of all definitions of a name, in the document's order.

    The name may be qualified, as far out as one likes: `f`, `Class.f`, `Type::f`, `M:f`.

    Raises:
        RewriteError: `grammar_missing` or `parse_timeout`.
    """
    rules = RULES.get(language)
    wanted = name_parts(name)
    if rules is None or not wanted:
        return []
    tree = parse(text, language)
    found: list[tuple[tuple[str, ...], Definition]] = []
    implementations: list[Definition] = []
    around: list[Scope] = []
    for item in all_definitions(tree, language):
        node = item.node if isinstance(item, Scope) else item.outer
        while around and around[-1].node.end_byte <= node.start_byte:
            around.pop()
        if isinstance(item, Scope):
            around.append(item)
            continue
        path = _qualified(item.names, around, len(wanted) + 1)
        if path[-len(wanted) :] == wanted:
            found.append((path, item))
        elif item.scope != item.names and item.scope[-len(wanted) :] == wanted:
            implementations.append(item)
        around.append(Scope(node, item.scope))
    definitions = [item for _, item in _without_overloads(found)] or implementations
    return [_span(tree, item, rules) for item in definitions]


def span_of_range(text: str, start: int, end: int) -> Span:
    """Return a range widened to whole lines, without blank lines at its ends.

    A range that ends at the beginning of a line does not take that line in.

    Args:
        text: the whole document.
        start: a character offset; clamped to the text.
        end: another, before or behind it.

    Raises:
        RewriteError: `empty_selection` when there is only white space.
    """
    start, end = sorted(max(0, min(offset, len(text))) for offset in (start, end))
    first = _text_line_start(text, start)
    if end > start and end == _text_line_start(text, end):
        end -= 1
        if text[end] == "\n" and end > 0 and text[end - 1] == "\r":
            end -= 1
    last = _text_line_end(text, max(first, end))
    lines = text[first:last]
    if not lines.strip():
        raise RewriteError(
            "empty_selection", "The selection holds only white space: select the code to change."
        )
    first = _text_line_start(text, first + len(lines) - len(lines.lstrip()))
    last = _text_line_end(text, first + len(text[first:last].rstrip()))
    return Span(first, last)


def _innermost(
    tree: SyntaxTree, language: str, rules: SpanRules, byte: int
) -> tuple[Span | None, tuple[int, int] | None]:
    """Return the best span at a byte, and a broken definition that may hide a better one."""
    best: tuple[int, int, Definition] | None = None
    broken: tuple[int, int] | None = None
    for point in _points(tree, rules, byte):
        for found in _definitions_at(tree, language, point):
            start, end = definition_bounds(tree, found, rules)
            if start <= byte <= end:
                beside = byte == end < line_end(tree.data, byte)
                if best is None or (best[0] <= start and end <= best[1] and not beside):
                    best = start, end, found
                break
            if broken is None and end < byte <= found.outer.end_byte:
                broken = start, end
    return _span(tree, best[2], rules) if best else None, broken


def _points(tree: SyntaxTree, rules: SpanRules, byte: int) -> Iterator[int]:
    """Yield the places whose definitions could be around `byte`.

    Those are the byte itself, the next code after white space, comments and attributes
    without a blank line between, and the last code before it on its line.
    """
    data = tree.data
    yield byte
    forward = _next_code(tree, rules, byte)
    if forward != byte:
        yield forward
    start = line_start(data, byte)
    comment = tree.comment_at(byte) or (tree.comment_at(byte - 1) if byte > start else None)
    if comment is not None and start <= comment.start_byte:
        byte = comment.start_byte
    before = start + len(data[start:byte].rstrip(_BLANK + b";,"))
    if before > start:
        yield before - 1


def _next_code(tree: SyntaxTree, rules: SpanRules, byte: int) -> int:
    data = tree.data
    after_attribute = False
    for _ in range(MOST_COMMENTS):
        end = byte
        while end < len(data) and data[end] in b" \t\f\v\r\n":
            end += 1
        gap = data[byte:end].replace(b"\r\n", b"\n")
        if end == len(data) or (gap.count(b"\n") > 1 and not after_attribute):
            return byte
        byte = end
        comment = tree.comment_at(byte)
        if comment is not None:
            byte = _after(data, comment.start_byte, comment.end_byte)
            continue
        attribute = _attribute_at(tree, rules, byte)
        if attribute is None:
            return byte
        byte = attribute
        after_attribute = True
    return byte


def _after(data: bytes, start: int, end: int) -> int:
    """Return the end of a node without the line end that some comments hold."""
    return start + len(data[start:end].rstrip(b" \t\f\v\r\n"))


def _attribute_at(tree: SyntaxTree, rules: SpanRules, byte: int) -> int | None:
    if not rules.attributes:
        return None
    path = tree.path_at(byte)
    return next((node.end_byte for node in path if node.type in rules.attributes), None)


def _definitions_at(tree: SyntaxTree, language: str, byte: int) -> list[Definition]:
    """Return the definitions that hold a byte, innermost first."""
    found: list[Definition] = []
    for item in definitions_among(tree.path_at(byte), tree, language):
        if not isinstance(item, Definition):
            continue
        # Of two that begin together, such as a function and the record it returns, the
        # inner one could not be told from the outer one at that place.
        if found and found[-1].outer.start_byte == item.outer.start_byte:
            continue
        found.append(item)
    return found[: -_TRIED_AT_A_POINT - 1 : -1]


def _span(tree: SyntaxTree, found: Definition, rules: SpanRules) -> Span:
    start, end = definition_bounds(tree, found, rules)
    name = found.names[-1] if found.names else ""
    return Span(tree.char_offset(start), tree.char_offset(end), found.kind, name)


def _qualified(names: tuple[str, ...], around: list[Scope], parts: int) -> tuple[str, ...]:
    path = names
    for scope in reversed(around):
        if len(path) >= parts:
            break
        path = scope.names + path
    return path


def _without_overloads(
    found: list[tuple[tuple[str, ...], Definition]],
) -> Iterator[tuple[tuple[str, ...], Definition]]:
    """Drop the signatures that stand directly in front of the function they belong to."""
    for _, group in groupby(found, key=lambda pair: pair[0]):
        same = list(group)
        whole = [pair for pair in same if "signature" not in pair[1].core.type]
        yield from whole or same


def _text_line_start(text: str, offset: int) -> int:
    start = max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1
    if start == offset and text[offset - 1 : offset + 1] == "\r\n":
        return _text_line_start(text, offset - 1)
    return start


def _text_line_end(text: str, offset: int) -> int:
    ends = [end for end in (text.find("\n", offset), text.find("\r", offset)) if end >= 0]
    end = min(ends, default=len(text))
    if end == offset and text[offset - 1 : offset + 1] == "\r\n":
        return offset - 1
    return end
