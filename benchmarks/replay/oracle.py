"""The oracle: copies the source perfectly and in order, and never guesses at new text.

It is told the reference. What it needs more passes for than others is what copying alone
cannot bring.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

from drafters.core import NO_DRAFT, Draft, DraftContext


class Oracle:
    """Drafts the reference wherever an alignment copies it from the source.

    Args:
        reference: the answer's tokens.
    """

    def __init__(self, reference: Sequence[int]) -> None:
        self._reference = reference
        self._copied: list[bool] = []
        self._place = 0

    def begin(self, context: DraftContext) -> None:
        """Align source and reference."""
        matcher = SequenceMatcher(None, context.source, self._reference, autojunk=False)
        self._copied = [False] * len(self._reference)
        for block in matcher.get_matching_blocks():
            self._copied[block.b : block.b + block.size] = [True] * block.size
        self._place = 0

    def propose(self, limit: int) -> Draft:
        """Return the copied run that begins here."""
        end = self._place
        while end < len(self._copied) and end - self._place < limit and self._copied[end]:
            end += 1
        if end == self._place:
            return NO_DRAFT
        return Draft(self._reference[self._place : end], "source")

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Go on."""
        self._place += len(accepted) + 1
