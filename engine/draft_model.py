"""The small model that drafts where there is nothing to copy."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from engine.core import Cancelled, EngineError, IsCancelled, never_cancelled
from engine.kv_cache import common_prefix
from engine.loader import LoadedModel

DOUBT = 0.5
"""The draft ends where the small model gives its own choice less than this."""

LONGEST = 8


class GreedyDraftModel:
    """Continues a context greedily; keeps its own KV cache in step with the answer."""

    def __init__(self, model: LoadedModel) -> None:
        self._runner = model.runner
        # A draft need not be exact, and the passes for one row are the cheaper ones.
        self._cache = model.runner.new_cache(1, exact=False)
        self._is_cancelled: IsCancelled = never_cancelled

    def begin(self, is_cancelled: IsCancelled) -> None:
        """Serve another answer, whose `is_cancelled` is asked after every prefill chunk."""
        self._is_cancelled = is_cancelled

    def greedy(self, context: Sequence[int], limit: int) -> tuple[list[int], float]:
        """Return up to `limit` tokens and the probability of the first.

        Raises:
            Cancelled: `is_cancelled` answered True while the context was read.
        """
        wanted = list(context)
        limit = min(limit, LONGEST, self._runner.max_context - len(wanted))
        if limit < 1:
            return [], 0.0
        same = min(common_prefix(wanted, self._cache.tokens), len(wanted) - 1)
        if same:
            self._cache.rollback(self._cache.length - same)
        else:
            # Not the old one: it may have grown for a context many times as long.
            self._cache = self._runner.new_cache(len(wanted) + LONGEST, exact=False)
        for _ in self._runner.prefill(self._cache, wanted[same:-1]):
            if self._is_cancelled():
                raise Cancelled
        tokens: list[int] = []
        first = 0.0
        last = wanted[-1]
        while len(tokens) < limit:
            row = torch.softmax(self._runner.verify(self._cache, [last])[-1].float(), dim=-1)
            probability, token = (value.item() for value in row.max(dim=-1))
            if not tokens:
                first = probability
            if probability < DOUBT and tokens:
                break
            last = int(token)
            tokens.append(last)
        return tokens, first


def check_same_tokenizer(target: LoadedModel, draft: LoadedModel) -> None:
    """Raise EngineError unless both models give every token the same id."""
    if target.tokenizer.get_vocab() != draft.tokenizer.get_vocab():
        raise EngineError(
            "draft_model_mismatch",
            f"{draft.name} has another tokenizer than {target.name}, so it cannot draft for it; "
            "take a smaller model of the same family, or none.",
        )
