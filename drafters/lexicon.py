"""Facts about single tokens: what they spell, whether they end a line, their kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_WORDS = re.compile(r"\w+")

INSTRUCTION_WORDS = 200
"""Words of the instruction that are looked at."""


class Lexicon:
    """Remembers facts about tokens as they are asked for.

    Args:
        pieces: returns the bytes of a token id; None where they are not known.
    """

    def __init__(self, pieces: Callable[[int], bytes] | None) -> None:
        self._spell = pieces
        self._pieces: dict[int, bytes] = {}
        self._ends_line: dict[int, bool] = {}
        self._kinds: dict[int, object] = {}

    def piece(self, token: int) -> bytes:
        """Return what the token spells; empty where it is not known."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._spell(token) if self._spell else b""
        return known

    def ends_line(self, token: int) -> bool:
        """Return whether the token ends with a line end."""
        known = self._ends_line.get(token)
        if known is None:
            known = self._ends_line[token] = self.piece(token).endswith(b"\n")
        return known

    def kind(self, token: int) -> object:
        """Return the token's kind: words by their looks, punctuation by its last marks."""
        known = self._kinds.get(token)
        if known is None:
            known = self._kinds[token] = _kind(self.piece(token))
        return known


def word_starts(text: str, tokenize: Callable[[str], Sequence[int]]) -> frozenset[int]:
    """Return the first tokens of the text's words, with and without a space before them."""
    words = list(dict.fromkeys(_WORDS.findall(text)))[:INSTRUCTION_WORDS]
    return frozenset(
        tokens[0] for word in words for form in (word, f" {word}") if (tokens := tokenize(form))
    )


def _kind(piece: bytes) -> object:
    if not piece:
        return None
    last = piece[-1:]
    if last == b"\n":
        return piece[:1] == b"\n"
    if last.isalnum() or last == b"_" or last > b"\x7f":
        return piece[:1] == b" ", piece.strip()[:1].isupper(), last.isdigit()
    return piece[-2:].strip()
