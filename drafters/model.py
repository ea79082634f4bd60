"""Drafts with a small model, where the text is new.

The model itself is handed in, so that this room needs no torch: anything with
`greedy(context, limit)` will do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drafters.core import NO_DRAFT, Draft, DraftContext


class DraftModel(Protocol):
    """A small causal model with the target's tokenizer."""

    def greedy(self, context: Sequence[int], limit: int) -> tuple[list[int], float]:
        """Continue `context` greedily by at most `limit` tokens, fewer when in doubt.

        Returns:
            The tokens and the probability that the model gives to the first.
        """
        ...


class ModelDrafter:
    """Asks a small model for the next tokens."""

    def __init__(self, model: DraftModel) -> None:
        self._model = model
        self._context: list[int] = []

    def begin(self, context: DraftContext) -> None:
        """Remember the prompt; the model reads it only when first asked."""
        self._context = list(context.prompt)

    def propose(self, limit: int) -> Draft:
        """Return the small model's own greedy continuation."""
        tokens, confidence = self._model.greedy(self._context, limit)
        return Draft(tokens, "model", confidence) if tokens else NO_DRAFT

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Append what the target emitted."""
        self._context.extend(accepted)
        self._context.append(next_token)
