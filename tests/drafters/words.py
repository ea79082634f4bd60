"""A toy tokeniser whose tokens reach over seams: words with the space before them."""

from __future__ import annotations

import re

from drafters.core import DraftContext

_TOKENS = re.compile(r" ?\w+|[ \t]*\n\s*\n|\n|[ \t]+(?= \w)|[ \t]+|[^\w\s]+\n?")


class Words:
    """Gives each distinct token text an id, in the order of their first use."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._texts: list[str] = []

    def tokenize(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        found = _TOKENS.findall(text)
        for token in found:
            if token not in self._ids:
                self._ids[token] = len(self._texts)
                self._texts.append(token)
        return [self._ids[token] for token in found]

    def piece(self, token: int) -> bytes:
        """Return the bytes of a token id; empty for ids never given out."""
        return self._texts[token].encode() if 0 <= token < len(self._texts) else b""

    def text(self, tokens) -> str:
        """Return the text of token ids."""
        return b"".join(map(self.piece, tokens)).decode()

    def context(self, source: str, instruction: str = "", earlier: tuple[str, ...] = ()):
        """Return what a drafter is told about a rewrite of `source`."""
        prompt = self.tokenize(f"```\n{source}```\n{instruction}\n```\n")
        return DraftContext(
            prompt,
            self.tokenize(source + "```"),
            instruction,
            self.piece,
            self.tokenize,
            [self.tokenize(text) for text in earlier],
        )
