"""Drafts by knowing where in the source the answer stands (drafters/alignment.py)."""

from __future__ import annotations

from collections.abc import Sequence

from drafters.alignment import Alignment
from drafters.core import NO_DRAFT, NO_TOKENS, Draft, DraftContext


class SourceDrafter:
    """Copies on from the place in the source where the answer stands."""

    def __init__(self) -> None:
        self._alignment = Alignment(NO_TOKENS)

    def begin(self, context: DraftContext) -> None:
        """Index the source and stand at its start."""
        self._alignment = Alignment(context.source)

    def propose(self, limit: int) -> Draft:
        """Return the source from the best place on; empty past the end of the source."""
        place, _, run = self._alignment.beam[0]
        tokens = self._alignment.source[place : place + limit]
        if not tokens:
            return NO_DRAFT
        # Right after an edit nothing has matched yet: a coin toss. Each matching
        # token since then halves the doubt.
        confidence = 1.0 - 0.5 ** (1 + run) if self._alignment.edits else 0.9
        return Draft(tokens, "source", confidence, place)

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Advance every hypothesis by the tokens that the target emitted."""
        for token in accepted:
            self._alignment.advance(token)
        self._alignment.advance(next_token)
