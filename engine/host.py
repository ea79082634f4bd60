"""Holds the models: loads what a request names, keeps it warm, and answers requests.

One target at a time. A request for another model unloads the first; so two windows that
use different models take turns, and memory holds one.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from engine.background import with_progress
from engine.core import (
    Event,
    GenerationRequest,
    IsCancelled,
    OnProgress,
    Progress,
    RunnerState,
)
from engine.cost_store import cost_of
from engine.draft_model import GreedyDraftModel, check_same_tokenizer
from engine.earlier import EarlierRewrites
from engine.generation import generate
from engine.loader import LoadedModel, load_model
from engine.prefix import PrefixCache, default_budget
from engine.store import resolve
from engine.workspace.indexes import WorkspaceIndexes

log = logging.getLogger(__name__)

DEFAULT_NAMES = ("", "default")

DRAFT_SHARE = 4
"""A draft model, being small, keeps this part of what the target may keep."""


class ModelHost:
    """The engine's inside; see `engine.core.Generator`.

    Args:
        device, dtype, runner: as in `load_model`.
        default_model: what a request means that names no model.
        prefix_budget: bytes of KV caches kept for later requests; see `PrefixCache`.
    """

    def __init__(
        self,
        device: str | None,
        dtype: str | None,
        default_model: str,
        prefix_budget: int | None = None,
        runner: str | None = None,
    ) -> None:
        self._device = device
        self._dtype = dtype
        self._runner = runner
        self._default = default_model
        self._prefix_budget = prefix_budget
        self._target: LoadedModel | None = None
        self._prefix: PrefixCache | None = None
        self._indexes: WorkspaceIndexes | None = None
        self._earlier = EarlierRewrites()
        self._draft: tuple[str, GreedyDraftModel] | None = None

    @property
    def loaded_model(self) -> str | None:
        """Name of the target in memory, or None."""
        return self._target.name if self._target else None

    @property
    def running(self) -> RunnerState | None:
        """How the target is run, or None; asked on any thread."""
        target = self._target
        if target is None:
            return None
        runner = target.runner
        return RunnerState(runner.name, runner.device, runner.dtype, runner.exact, runner.notice)

    @property
    def kept(self) -> tuple[int, int]:
        """How many sequences the prefix cache keeps, and their bytes; asked on any thread."""
        prefix = self._prefix
        return (0, 0) if prefix is None else (prefix.sequences, prefix.bytes)

    def generate(self, request: GenerationRequest, is_cancelled: IsCancelled) -> Iterator[Event]:
        """Load what the request needs, then answer it."""
        target = yield from self._ensure_target(self._name_of(request), is_cancelled)
        draft_model = None
        if request.draft_model and _is_drafted_by_model(request):
            draft_model = yield from self._ensure_draft(request.draft_model, target, is_cancelled)
        assert self._prefix is not None
        yield from generate(
            target,
            draft_model,
            self._prefix,
            request,
            is_cancelled,
            self._indexes,
            self._earlier,
        )

    def fits_beside(self, request: GenerationRequest, others: Sequence[GenerationRequest]) -> bool:
        """Return whether `request` may be answered at once with `others`.

        All must want what is loaded, so that nobody waits for a load in another's turn.
        """
        everybody = (request, *others)
        draft_models = {asked.draft_model for asked in everybody if _is_drafted_by_model(asked)}
        return {self._name_of(asked) for asked in everybody} == {
            self.loaded_model
        } and draft_models <= {self._draft[0] if self._draft else None}

    def _name_of(self, request: GenerationRequest) -> str:
        return self._default if request.model in DEFAULT_NAMES else request.model

    def close(self) -> None:
        """Let go of the models."""
        # What was learnt about the cost of passes goes too: an hour on a busy machine would
        # make the next start choose worse windows than its measurement does.
        if self._indexes is not None:
            self._indexes.close()
        self._indexes = None
        self._target = None
        self._prefix = None
        # Token ids mean nothing to another tokenizer.
        self._earlier = EarlierRewrites()
        self._draft = None
        gc.collect()

    def _ensure_target(
        self, name: str, is_cancelled: IsCancelled
    ) -> Generator[Progress, None, LoadedModel]:
        if self._target is not None and self._target.name == name:
            return self._target
        # Before the other is let go: a name that does not exist costs nobody a model.
        folder = yield from self._fetch(name, is_cancelled)
        self.close()
        self._target = yield from self._load(name, folder, is_cancelled, is_target=True)
        self._prefix = PrefixCache(self._target.runner, self._prefix_budget)
        self._indexes = WorkspaceIndexes(folder / "tokenizer.json")
        return self._target

    def _ensure_draft(
        self, name: str, target: LoadedModel, is_cancelled: IsCancelled
    ) -> Generator[Progress, None, GreedyDraftModel]:
        if self._draft is not None and self._draft[0] == name:
            return self._draft[1]
        folder = yield from self._fetch(name, is_cancelled)
        self._draft = None
        loaded = yield from self._load(name, folder, is_cancelled)
        check_same_tokenizer(target, loaded)
        self._draft = (name, GreedyDraftModel(loaded, self._draft_budget(loaded), target.cost))
        return self._draft[1]

    def _draft_budget(self, draft: LoadedModel) -> int:
        budget = self._prefix_budget
        whole = default_budget(draft.runner.device) if budget is None else budget
        return whole // DRAFT_SHARE

    def _fetch(self, name: str, is_cancelled: IsCancelled) -> Generator[Progress, None, Path]:
        return with_progress(lambda on_progress: resolve(name, on_progress, is_cancelled))

    def _load(
        self, name: str, folder: Path, is_cancelled: IsCancelled, is_target: bool = False
    ) -> Generator[Progress, None, LoadedModel]:
        def work(on_progress: OnProgress) -> LoadedModel:
            loaded = load_model(
                name,
                folder,
                self._device,
                self._dtype,
                on_progress,
                is_cancelled,
                wait=False,
                runner=self._runner if is_target else None,
            )
            return replace(loaded, cost=cost_of(str(folder), loaded.runner))

        yield Progress("loading", None, name)
        loaded = yield from with_progress(work)
        log.info(
            "loaded %s: %s on %s in %s",
            name,
            loaded.runner.name,
            loaded.runner.device,
            loaded.runner.dtype,
        )
        return loaded


def _is_drafted_by_model(request: GenerationRequest) -> bool:
    return request.draft and bool(request.draft_model)
