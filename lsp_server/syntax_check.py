"""Whether a rewrite broke the syntax: errors of the text before and after it, compared."""

from __future__ import annotations

from tree_sitter import Node

from lsp_server.core import RewriteError, Span
from lsp_server.span_rules import RULES
from lsp_server.syntax import SyntaxTree, parse
from lsp_server.text.positions import LINE_END

_MOST_MESSAGES = 5
_MOST_LOOKED_AT = 100
_LONGEST_COMPARED = 200  # bytes; errors can lie in one another, each nearly the whole text
_LONGEST_TOKEN = 30
_CLOSES = {")": "(", "]": "[", "}": "{"}


def new_syntax_errors(
    before: str, after: str, language: str, span: Span, new_span_end: int
) -> list[str]:
    """Return what an edit broke, one message an error; [] when it broke nothing.

    An edit is fine when neither the number of errors in the span nor the number behind it
    grows. Errors that were there stay unmentioned, and so do all errors when the language
    is not known. When the file takes too long to parse, the span is judged for itself; all
    errors stay unmentioned only when that takes too long too.

    Args:
        before: the whole document.
        after: the whole document with the new text.
        language: an LSP language id.
        span: what was replaced, in `before`.
        new_span_end: the end of the new text, in `after`.
    """
    if language not in RULES:
        return []
    try:
        return _new_errors(before, after, language, span, new_span_end)
    except RewriteError:
        pass
    # Empty lines in front keep the line numbers.
    lines = "\n" * (len(LINE_END.findall(before, 0, span.start)))
    old_part = lines + before[span.start : span.end]
    new_part = lines + after[span.start : new_span_end]
    part = Span(len(lines), len(old_part))
    try:
        return _new_errors(old_part, new_part, language, part, len(new_part))
    except RewriteError:
        return []


def _new_errors(before: str, after: str, language: str, span: Span, new_span_end: int) -> list[str]:
    """As `new_syntax_errors`; raises RewriteError when a text takes too long to parse."""
    old, new = parse(before, language), parse(after, language)
    old_inside, old_behind = _errors(old, span.start, span.end)
    new_inside, new_behind = _errors(new, span.start, new_span_end)
    broken: list[Node] = []
    if len(new_inside) > len(old_inside):
        broken += _added(old, old_inside, new, new_inside)
    if len(new_behind) > len(old_behind):
        broken += _added(old, old_behind, new, new_behind)
    messages = dict.fromkeys(
        _message(after, new, node, span.start) for node in broken[:_MOST_LOOKED_AT]
    )
    return list(messages)[:_MOST_MESSAGES]


def _errors(tree: SyntaxTree, start: int, end: int) -> tuple[list[Node], list[Node]]:
    """Return the errors that touch the range, in characters, and those behind it."""
    first, last = tree.byte_offset(start), tree.byte_offset(end)
    inside: list[Node] = []
    behind: list[Node] = []
    for node in tree.error_nodes():
        if node.start_byte > last:
            behind.append(node)
        elif node.end_byte >= first:
            inside.append(node)
    return inside, behind


def _added(
    old: SyntaxTree, old_nodes: list[Node], new: SyntaxTree, new_nodes: list[Node]
) -> list[Node]:
    """Return the nodes whose kind and text are not among the old ones; never an empty list."""
    known = {_kind_and_text(old, node) for node in old_nodes}
    added = [node for node in new_nodes if _kind_and_text(new, node) not in known]
    return added or new_nodes[len(old_nodes) :]


def _kind_and_text(tree: SyntaxTree, node: Node) -> tuple[str, int, bytes]:
    start, end = node.start_byte, node.end_byte
    return node.type, end - start, tree.data[start : min(end, start + _LONGEST_COMPARED)]


def _message(text: str, tree: SyntaxTree, node: Node, span_start: int) -> str:
    if node.is_missing:
        return f"line {_line(text, tree, node)}: missing `{node.type}`"
    token, what = _offending_token(node, tree.byte_offset(span_start))
    lines = tree.text_of(token).strip().splitlines()
    shown = lines[0][:_LONGEST_TOKEN] if lines else "end of the file"
    return f"line {_line(text, tree, token)}: {what} `{shown}`"


def _offending_token(error: Node, first_byte: int) -> tuple[Node, str]:
    """Return the token to show for an ERROR node, and what is wrong with it.

    Brackets that have a partner are in a node of their own. So a closing bracket that is
    the error's own child is the culprit, then an opening one, else the first token.
    """
    children = [child for child in error.children if child.end_byte > first_byte]
    open_brackets: list[Node] = []
    for child in children:
        if child.type in _CLOSES:
            if not open_brackets or open_brackets[-1].type != _CLOSES[child.type]:
                return child, "unexpected"
            open_brackets.pop()
        elif child.type in _CLOSES.values():
            open_brackets.append(child)
    if open_brackets:
        return open_brackets[-1], "unclosed"
    token = error
    while children:
        token = children[0]
        children = [child for child in token.children if child.end_byte > first_byte]
    return token, "unexpected"


def _line(text: str, tree: SyntaxTree, node: Node) -> int:
    before = text[: tree.char_offset(node.start_byte)]
    return 1 + before.count("\n") + before.count("\r") - before.count("\r\n")
