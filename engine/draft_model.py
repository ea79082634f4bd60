"""The small model that drafts where there is nothing to copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from engine.core import EngineError
from engine.kv_cache import KVCache, common_prefix
from engine.loader import LoadedModel
from engine.prefix import PrefixCache
from engine.runner import Runner

DOUBT = 0.5
"""The draft ends where the small model gives its own choice less than this."""

LONGEST = 8


class GreedyDraftModel:
    """A draft model that is loaded; each answer drafts in a session of its own.

    Args:
        model: with the target's tokenizer.
        budget: bytes of KV caches kept for later sessions; see `PrefixCache`.

    Raises:
        EngineError: `draft_model_mismatch`: the model cannot take a refused token back.
    """

    def __init__(self, model: LoadedModel, budget: int | None = None) -> None:
        if not model.runner.max_draft:
            raise EngineError(
                "draft_model_mismatch",
                f"{model.name} cannot draft, because its state cannot be rolled back when a "
                "draft is refused; take another draft model, or none.",
            )
        self._runner = model.runner
        self._prefix = PrefixCache(model.runner, budget)

    def session(self) -> DraftSession:
        """Return what drafts for one answer."""
        return DraftSession(self._runner, self._prefix)


class DraftSession:
    """Continues a context greedily; keeps its own KV cache in step with one answer."""

    def __init__(self, runner: Runner, prefix: PrefixCache) -> None:
        self._runner = runner
        self._prefix = prefix
        self._cache: KVCache | None = None
        self._unread: list[int] = []

    def greedy(self, context: Sequence[int], limit: int) -> tuple[list[int], float]:
        """Return up to `limit` tokens and the probability of the first.

        Where more than a chunk of the context has not been read there is no draft, so
        that no pass waits for a long prompt; `read` reads it.
        """
        wanted = list(context)
        limit = min(limit, LONGEST, self._runner.max_context - len(wanted))
        if limit < 1:
            return [], 0.0
        if self._cache is None:
            # A draft need not be exact, and the passes for one row are the cheaper ones.
            room = len(wanted) + LONGEST
            self._cache = self._prefix.take(wanted[:-1], room, exact=False)
        same = min(common_prefix(wanted, self._cache.tokens), len(wanted) - 1)
        self._cache.rollback(self._cache.length - same)
        self._unread = wanted[same:-1]
        if len(self._unread) > self._runner.prefill_chunk:
            return [], 0.0
        for _ in self.read():
            pass
        return self._continue(self._cache, wanted[-1], limit)

    def read(self) -> Iterator[None]:
        """Read what the last draft lacked, in steps; dropped between two, it may go on later."""
        unread, self._unread = self._unread, []
        if self._cache is not None:
            for _ in self._runner.prefill(self._cache, unread):
                yield

    def close(self) -> None:
        """Leave what was read to later sessions."""
        if self._cache is not None:
            self._prefix.give_back(self._cache, list(self._cache.tokens))
            self._cache = None

    def _continue(self, cache: KVCache, last: int, limit: int) -> tuple[list[int], float]:
        tokens: list[int] = []
        first = 0.0
        while len(tokens) < limit:
            row = torch.softmax(self._runner.verify(cache, [last])[-1].float(), dim=-1)
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
