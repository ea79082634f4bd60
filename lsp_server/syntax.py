"""Parsing: text to a tree over its UTF-8 bytes, and the way between bytes and characters.

tree-sitter counts bytes; the rest of redraft counts characters of a Python string. The
two meet here only. Trees are walked with cursors, never by recursion, so that no input
is nested too deeply.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Collection, Iterator
from functools import lru_cache

from tree_sitter import Node, Parser, Tree

from lsp_server.core import RewriteError
from lsp_server.languages import grammar

PARSE_SECONDS = 0.25  # of this thread's processor time, so that a busy machine does not matter
_CACHED_TREES = 4
WALK_SECONDS = 2.0  # the same, for a look at every node
_COMMENT_KINDS = frozenset(("comment", "line_comment", "block_comment", "html_comment"))
_COMMENT_DEPTH = 4  # no comment has deeper parts, or more of them
_CHUNK_BYTES = 1 << 16
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_LONE_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")


class SyntaxTree:
    """A parsed text.

    Attributes:
        data: the bytes that were parsed. Lone surrogates are U+FFFD in it and a lone
            carriage return is a line feed; lengths are those of the text's UTF-8.
        root: the root node.
        last_error_end: where the last syntax error ends, in bytes; -1 when there is none.
    """

    __slots__ = ("_text", "data", "last_error_end", "root", "tree")

    def __init__(self, text: str, data: bytes, tree: Tree) -> None:
        self._text = text
        self.data = data
        self.tree = tree
        self.root: Node = tree.root_node
        self.last_error_end = max((node.end_byte for node in self.error_nodes()), default=-1)

    def byte_offset(self, offset: int) -> int:
        """Return the byte at which the character at `offset` begins; clamps to the text."""
        offset = max(0, min(offset, len(self._text)))
        if len(self.data) == len(self._text):
            return offset
        return len(_encode(self._text[:offset]))

    def char_offset(self, byte: int) -> int:
        """Return the index of the character that begins at, or holds, the byte."""
        byte = max(0, min(byte, len(self.data)))
        if len(self.data) == len(self._text):
            return byte
        return len(self.data[:byte].decode("utf-8", "ignore"))

    def text_of(self, node: Node) -> str:
        """Return the node's text."""
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def comment_at(self, byte: int) -> Node | None:
        """Return the comment that holds the byte."""
        node = self.root.descendant_for_byte_range(byte, byte + 1)
        for _ in range(_COMMENT_DEPTH):
            if node is None or node.child_count > _COMMENT_DEPTH:
                return None
            if node.type in _COMMENT_KINDS:
                return node
            node = node.parent
        return None

    def nodes_of(self, kinds: Collection[str]) -> Iterator[Node]:
        """Yield the named nodes of some kinds, outer ones first, in order.

        Raises:
            RewriteError: `parse_timeout` after `WALK_SECONDS`.
        """
        # Not a query: those take quadratic time on a node with very many anonymous
        # children, and the time limit of tree-sitter 0.26's queries crashes the process.
        deadline = time.thread_time() + WALK_SECONDS
        cursor = self.tree.walk()
        for count in itertools.count():
            if count % 1000 == 0 and time.thread_time() > deadline:
                raise _timeout()
            node = cursor.node
            if node is not None and node.type in kinds and node.is_named:
                yield node
            if cursor.goto_first_child():
                continue
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return

    def path_at(self, byte: int) -> list[Node]:
        """Return the nodes that hold the byte, from the root to the smallest."""
        cursor = self.tree.walk()
        path = [self.root]
        while cursor.goto_first_child_for_byte(byte) is not None:
            node = cursor.node
            while node is not None and node.end_byte <= byte and cursor.goto_next_sibling():
                node = cursor.node
            if node is None or not node.start_byte <= byte < node.end_byte:
                break
            path.append(node)
        return path

    def error_nodes(self) -> Iterator[Node]:
        """Yield the ERROR and MISSING nodes, also those in one another, outer ones first."""
        if not self.root.has_error:
            return
        cursor = self.tree.walk()
        while True:
            node = cursor.node
            if node is None:
                return
            if node.is_error or node.is_missing:
                yield node
            if node.has_error and cursor.goto_first_child():
                continue
            while not cursor.goto_next_sibling():
                if not cursor.goto_parent():
                    return


def parse(text: str, language: str) -> SyntaxTree:
    """Parse a text of a known language; the last few trees are kept.

    Raises:
        RewriteError: `grammar_missing`, or `parse_timeout` when the text needs more than
            `PARSE_SECONDS`; a selection still works then.
    """
    tree = _parse(text, language)
    if tree is None:
        raise _timeout()
    return tree


@lru_cache(maxsize=_CACHED_TREES)
def _parse(text: str, language: str) -> SyntaxTree | None:
    data = _LONE_CARRIAGE_RETURN.sub(b"\n", _encode(text))
    parser = Parser(grammar(language))  # a new one each time: parsers are not for two threads
    deadline = time.thread_time() + PARSE_SECONDS
    try:
        tree = parser.parse(
            lambda byte, _point: data[byte : byte + _CHUNK_BYTES],
            progress_callback=lambda _byte, _has_error: time.thread_time() > deadline,
        )
    except ValueError:  # how the binding reports that the callback stopped it
        return None
    return SyntaxTree(text, data, tree)


def _timeout() -> RewriteError:
    return RewriteError(
        "parse_timeout",
        "This file takes too long to parse, so redraft cannot find its functions: "
        "select the lines to change.",
    )


def _encode(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return _LONE_SURROGATE.sub("�", text).encode("utf-8")
