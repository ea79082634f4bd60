"""From a definition's nodes to the lines that a rewrite may change. Pure, in bytes.

A definition brings its attributes, the comments directly above it and a comment behind it
on its last line. It covers whole lines, unless something else shares its first or last
line: there the node's own bounds hold, so that a neighbour is never inside.
"""

from __future__ import annotations

import re

from tree_sitter import Node

from lsp_server.definitions import Definition
from lsp_server.span_rules import SpanRules
from lsp_server.syntax import SyntaxTree

_BLANK = b" \t\f\v"
_WHITE = b" \t\f\v\r\n"
_BOM = b"\xef\xbb\xbf"
# Bounds on a look around, as each step costs more the more siblings there are.
MOST_COMMENTS = 500
_MOST_SIBLINGS = 100
# At a definition's own indentation these go on with it; anything else begins something new.
_GOES_ON = re.compile(
    rb"[{})\]]|end\b|else\b|elif\b|elsif\b|rescue\b|ensure\b|except\b|finally\b|catch\b|when\b"
    rb"|\w+[ \t]*:(?!:)|#[ \t]*(?:if|el|endif|define|undef|pragma|include|error|line)"
)


def definition_bounds(tree: SyntaxTree, found: Definition, rules: SpanRules) -> tuple[int, int]:
    """Return the first byte and the byte after the last of a definition's span."""
    data = tree.data
    first = first_node(found.outer, rules).start_byte
    last = first + len(data[first : found.outer.end_byte].rstrip(_WHITE))
    if may_swallow(tree, found):
        last = _before_swallowed(tree, found, last)
    return _with_comments_above(tree, first), _with_rest_of_line(tree, last)


def may_swallow(tree: SyntaxTree, found: Definition) -> bool:
    """Tell whether a syntax error may have made the definition run on over what follows.

    A closing bracket that lacks in it is reported in it, or behind it when a bracket of
    what is around closes it instead.
    """
    return found.core.has_error or tree.last_error_end >= found.core.end_byte


def first_node(outer: Node, rules: SpanRules) -> Node:
    """Return the first of the attributes in front of a definition, or the definition."""
    first = outer
    sibling = outer.prev_sibling if rules.attributes else None
    for _ in range(_MOST_SIBLINGS):
        if sibling is None:
            break
        if sibling.type in rules.attributes:
            first = sibling
        elif not is_comment(sibling):
            break
        sibling = sibling.prev_sibling
    return first


def is_comment(node: Node) -> bool:
    """Tell whether the node is a comment of any of the grammars."""
    return "comment" in node.type


def line_start(data: bytes, byte: int) -> int:
    """Return the byte at which the line of `byte` begins, after a byte order mark."""
    start = max(data.rfind(b"\n", 0, byte), data.rfind(b"\r", 0, byte)) + 1
    if start == 0 and data.startswith(_BOM) and byte >= len(_BOM):
        return len(_BOM)
    return start


def line_end(data: bytes, byte: int) -> int:
    """Return the byte after the last of the line of `byte`, line end excluded."""
    end = data.find(b"\n", byte)
    if end < 0:
        return len(data)
    return end - 1 if end > byte and data[end - 1 : end] == b"\r" else end


def _with_comments_above(tree: SyntaxTree, byte: int) -> int:
    """Return where the block of comments directly above begins, else the line or `byte`."""
    data = tree.data
    best = byte
    for _ in range(MOST_COMMENTS):
        start = line_start(data, byte)
        before = len(data[start:byte].rstrip(_BLANK)) + start
        if before == start:
            best = start
            if start == 0:
                return best
            before = _end_of_previous_line(data, start)
        if before <= 0 or data[before - 1 : before] in (b"\n", b"\r", b""):
            return best
        comment = tree.comment_at(before - 1)
        if comment is None or comment.start_byte >= byte or _is_for_the_file(tree, comment):
            return best
        byte = comment.start_byte
    return best


def _end_of_previous_line(data: bytes, start: int) -> int:
    """Return the byte after the last visible one of the line above, or its start if blank."""
    end = start - 1
    if end > 0 and data[end - 1 : end + 1] == b"\r\n":
        end -= 1
    above = line_start(data, end)
    return above + len(data[above:end].rstrip(_BLANK))


def _is_for_the_file(tree: SyntaxTree, comment: Node) -> bool:
    """Tell a comment that is about the file, not about what follows it."""
    text = tree.data[comment.start_byte : comment.start_byte + 3]
    if text.startswith(b"#!"):
        return comment.start_byte == 0
    return any(child.type == "inner_doc_comment_marker" for child in comment.children)  # Rust


def _with_rest_of_line(tree: SyntaxTree, last: int) -> int:
    """Take in `;` or `,` and comments up to the line's end; only a `;` where more follows."""
    data = tree.data
    end = line_end(data, last)
    byte = _skip_blank(data, last, end)
    own_end = byte + 1 if data[byte : byte + 1] == b";" else last
    if data[byte : byte + 1] in (b";", b","):
        byte = _skip_blank(data, byte + 1, end)
    while byte < end:
        comment = tree.comment_at(byte)
        if comment is None or comment.start_byte < last:
            return own_end
        after = comment.start_byte + len(data[comment.start_byte : comment.end_byte].rstrip(_WHITE))
        if after > end or after <= byte:
            return own_end
        byte = _skip_blank(data, after, end)
    return end


def _skip_blank(data: bytes, byte: int, end: int) -> int:
    while byte < end and data[byte] in _BLANK:
        byte += 1
    return byte


def _before_swallowed(tree: SyntaxTree, found: Definition, last: int) -> int:
    """Return the end of a definition that may have swallowed others, by its indentation.

    A line at the definition's own indentation that does not go on with it begins the next.
    """
    data = tree.data
    first = found.core.start_byte
    start = line_start(data, first)
    indent = len(data[start:first]) - len(data[start:first].lstrip(_BLANK))
    head = byte = line_end(data, _end_of_head(found.core))
    while byte < last:
        line = byte + (2 if data[byte : byte + 2] == b"\r\n" else 1)
        byte = line_end(data, line)
        text = data[line:byte]
        margin = len(text) - len(text.lstrip(_BLANK))
        if not text.strip(_WHITE):
            continue
        if margin <= indent and not _GOES_ON.match(text, margin):
            if _tells_nothing(tree, line + margin):
                continue
            next_begins = _with_comments_above(tree, line + margin)
            return min(last, max(head, len(data[:next_begins].rstrip(_WHITE))))
    return last


def _tells_nothing(tree: SyntaxTree, byte: int) -> bool:
    """Tell whether the line that begins here is a comment, or in a string from further up."""
    if tree.comment_at(byte) is not None:
        return True
    token = tree.root.descendant_for_byte_range(byte, byte + 1)
    return any(
        node is not None
        and node.start_byte < byte
        and ("string" in node.type or "heredoc" in node.type)
        for node in (token, token and token.parent)
    )


def _end_of_head(core: Node) -> int:
    """Return a byte on the last line that is surely the definition's own head."""
    ends = [child.start_byte for child in core.children if child.is_error]
    body = core.child_by_field_name("body")
    if body is not None:
        ends.append(body.start_byte)
    return min(ends, default=core.start_byte)
