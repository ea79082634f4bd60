"""The small model that says what comes next where copies are in doubt (drafters/cascade.py)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch

from drafters.gains import FREE, Costs, Gains
from drafters.model import Saying
from engine.core import EngineError
from engine.cost import CostModel
from engine.kv_cache import KVCache, common_prefix
from engine.loader import LoadedModel
from engine.prefix import PrefixCache

DRAFTED_ROWS = 8
"""Rows of the target's pass whose time asking is weighed against."""

ROOM = 64
"""Tokens beyond those first asked about that get room in the KV cache at once."""


class GreedyDraftModel:
    """A draft model that is loaded; each answer drafts in a session of its own.

    Args:
        model: with the target's tokenizer.
        budget: bytes of KV caches kept for later sessions; see `PrefixCache`.
        target_cost: what the target's passes cost here; None: the time of neither counts,
            so the model is asked wherever that may save a pass.

    Attributes:
        gains: what was learnt about its use, from answer to answer.
        passes, rows, seconds: of all its passes so far, without the reading of prompts.
        read_tokens, read_seconds: of that.

    Raises:
        EngineError: `draft_model_mismatch`: the model cannot take a refused token back.
    """

    def __init__(
        self, model: LoadedModel, budget: int | None = None, target_cost: CostModel | None = None
    ) -> None:
        if not model.runner.max_draft:
            raise EngineError(
                "draft_model_mismatch",
                f"{model.name} cannot draft, because its state cannot be rolled back when a "
                "draft is refused; take another draft model, or none.",
            )
        self.runner = model.runner
        self.prefix = PrefixCache(model.runner, budget)
        self.cost = model.cost
        self.target_cost = target_cost
        self.gains = Gains()
        self.passes = self.rows = self.read_tokens = 0
        self.seconds = self.read_seconds = 0.0

    def session(self) -> DraftSession:
        """Return what drafts for one answer."""
        return DraftSession(self)


class DraftSession:
    """Asks the small model for one answer; keeps a KV cache of its own in step with it.

    It is a `drafters.model.DraftModel`.
    """

    def __init__(self, model: GreedyDraftModel) -> None:
        self._model = model
        self._runner = model.runner
        self._cache: KVCache | None = None
        self._unread: list[int] = []
        self.gains = model.gains

    def costs(self, context: Sequence[int]) -> Costs:
        """Return what asking behind `context` would cost now, in seconds."""
        target, own = self._model.target_cost, self._model.cost
        if target is None:
            return FREE
        length = len(context)
        one, eight = own.seconds(1, length), own.seconds(8, length)
        unread = length - 1 - (self._cache.length if self._cache is not None else 0)
        chunk = self._runner.prefill_chunk
        if unread <= 0:
            reading = 0.0
        elif unread <= chunk:  # read in the same pass
            reading = own.seconds(unread + 1, length) - one
        else:
            reading = own.seconds(chunk, length) * unread / chunk
        return Costs(target.seconds(DRAFTED_ROWS, length), one, (eight - one) / 7.0, reading)

    def say(self, tokens: Sequence[int], rows: int) -> list[Saying]:
        """Return what the model says behind each of the last `rows` tokens.

        Where more than a chunk of the others has not been read it says nothing, so that no
        pass waits for a long prompt; `read` reads it.
        """
        wanted = list(tokens)
        if not 0 < rows <= len(wanted) <= self._runner.max_context:
            return []
        known = len(wanted) - rows
        if self._cache is None:
            # A draft need not be exact, and the passes for one row are the cheaper ones.
            room = len(wanted) + ROOM
            self._cache = self._model.prefix.take(wanted[:known], room, exact=False)
        same = min(common_prefix(wanted, self._cache.tokens), known)
        self._cache.rollback(self._cache.length - same)
        self._unread = wanted[same:known]
        if len(self._unread) > self._runner.prefill_chunk:
            return []
        window, self._unread = wanted[same:], []
        said: list[Saying] = []
        longest = self._runner.max_draft + 1
        for start in range(0, len(window), longest):
            said += self._pass(self._cache, window[start : start + longest])
        return said[-rows:]

    def read(self) -> Iterator[None]:
        """Read what was lacking, in steps; dropped between two, it may go on later."""
        unread, self._unread = self._unread, []
        if self._cache is None or not unread:
            return
        started, before = time.perf_counter(), self._cache.length
        for _ in self._runner.prefill(self._cache, unread):
            self._model.read_seconds += time.perf_counter() - started
            yield
            started = time.perf_counter()
        self._model.read_seconds += time.perf_counter() - started
        self._model.read_tokens += self._cache.length - before

    def close(self) -> None:
        """Leave what was read to later sessions."""
        if self._cache is not None:
            self._model.prefix.give_back(self._cache, list(self._cache.tokens))
            self._cache = None

    def _pass(self, cache: KVCache, window: list[int]) -> list[Saying]:
        model, context = self._model, cache.length
        started = time.perf_counter()
        logits = self._runner.verify(cache, window).float()
        probabilities, tokens = torch.softmax(logits, dim=-1).max(dim=-1)
        said = [
            Saying(int(token), float(probability))
            for token, probability in zip(tokens.tolist(), probabilities.tolist(), strict=True)
        ]
        seconds = time.perf_counter() - started
        model.cost.observe(len(window), context, seconds)
        model.passes += 1
        model.rows += len(window)
        model.seconds += seconds
        return said


def check_same_tokenizer(target: LoadedModel, draft: LoadedModel) -> None:
    """Raise EngineError unless both models give every token the same id."""
    if target.tokenizer.get_vocab() != draft.tokenizer.get_vocab():
        raise EngineError(
            "draft_model_mismatch",
            f"{draft.name} has another tokenizer than {target.name}, so it cannot draft for it; "
            "take a smaller model of the same family, or none.",
        )
