"""The answer as text, and token borders.

A draft that leaves the copied run is made from characters and tokenised as the model would
have written it: together with the line that it continues, since a token may reach over the
seam. Byte-level tokenisers never join a line's beginning to the line before it, so a line
is all that has to be tokenised again.

Texts are bytes, since a token may hold half a character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

LONGEST_LINE = 400
"""Lines longer than this, in bytes, are not tokenised again."""

CACHED = 2000
"""Tokenised lines that are remembered."""

CHUNK = re.compile(rb"[^\n]*\n(?:[ \t\r]*\n)*|[^\n]+\Z")
"""A line with the empty lines behind it, whose line ends are often one token."""


class Text:
    """What was written, and how further text would be tokenised.

    Args:
        pieces: returns the bytes of a token id.
        tokenize: returns the token ids of a text.

    Attributes:
        written: the answer so far.
        line: offset in it where the current line begins.
    """

    def __init__(
        self, pieces: Callable[[int], bytes], tokenize: Callable[[str], Sequence[int]]
    ) -> None:
        self.pieces = pieces
        self._tokenize = tokenize
        self.written = bytearray()
        self.line = 0
        self.ends = [0]
        self._line_tokens: list[int] = []
        self._whole = True
        self._cache: dict[bytes, list[int] | None] = {}

    @property
    def at_line_start(self) -> bool:
        """Whether the last token ended a line, or nothing was written."""
        return not self._line_tokens

    @property
    def current_line(self) -> bytes:
        """What stands in the current line so far."""
        return bytes(self.written[self.line :])

    def append(self, token: int) -> bool:
        """Append an emitted token; return whether it ends a line."""
        piece = self.pieces(token)
        self.written += piece
        self.ends.append(len(self.written))
        self._line_tokens.append(token)
        if not piece.endswith(b"\n"):
            # A line that begins inside a token cannot be tokenised by itself.
            self._whole = self._whole and b"\n" not in piece
            return False
        self._line_tokens = []
        self._whole = True
        return True

    def start_line(self) -> None:
        """Begin the next line; to be called after `append` said that one ended."""
        self.line = len(self.written)

    def tokenize(self, text: bytes) -> list[int] | None:
        """Return the tokens of whole lines, None where they hold half a character."""
        known = self._cache.get(text)
        if known is None and text not in self._cache:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            try:
                known = list(self._tokenize(text.decode("utf-8")))
            except UnicodeDecodeError:
                known = None
            self._cache[text] = known
        return known

    def continued(self, text: bytes) -> list[int] | None:
        """Return the tokens with which the model would write `text` behind the answer.

        None where it could not have come to write what it has written so far: then a
        token would have reached over the seam.
        """
        written = self._line_tokens
        if not written:
            return self.tokenize(text)
        if not self._whole or len(self.written) - self.line + len(text) > LONGEST_LINE:
            return None
        tokens = self.tokenize(self.current_line + text)
        if tokens is None or tokens[: len(written)] != written:
            return None
        return tokens[len(written) :]
