"""Chooses among the drafters: copying first, a model only where nothing can be copied."""

from __future__ import annotations

from collections.abc import Sequence

from drafters.core import NO_DRAFT, Draft, DraftContext, Drafter

DOUBT = 0.7
"""Below this confidence a copy is put beside the other drafters."""


class CascadeDrafter:
    """Takes the first confident draft of `copiers`, else the most confident of all.

    Args:
        copiers: cheap drafters, in order of preference.
        fallback: asked only when no copier is confident (a draft model).
    """

    def __init__(self, copiers: Sequence[Drafter], fallback: Drafter | None = None) -> None:
        self._copiers = tuple(copiers)
        self._fallback = fallback
        self._all = (*self._copiers, fallback) if fallback else self._copiers

    def begin(self, context: DraftContext) -> None:
        """Begin all of them."""
        for drafter in self._all:
            drafter.begin(context)

    def propose(self, limit: int) -> Draft:
        """Return the draft chosen; `NO_DRAFT` when nobody has one."""
        best = NO_DRAFT
        for drafter in self._copiers:
            draft = drafter.propose(limit)
            if draft.tokens and draft.confidence > best.confidence:
                best = draft
            if best.confidence >= DOUBT:
                return best
        if self._fallback is not None:
            draft = self._fallback.propose(limit)
            if draft.tokens and draft.confidence >= best.confidence:
                return draft
        return best

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Tell all of them."""
        for drafter in self._all:
            drafter.observe(accepted, next_token)
