"""Which runner serves a transformers model: the fastest that keeps its promise."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import torch

from engine import layers
from engine.core import EngineError
from engine.cuda import runner as cuda
from engine.eager import EagerRunner
from engine.kv_cache import KVCache
from engine.memory import is_out_of_memory
from engine.plain import PlainRunner
from engine.runner import Runner

log = logging.getLogger(__name__)

GRAPHS, EAGER, PLAIN = cuda.CudaGraphRunner.name, EagerRunner.name, PlainRunner.name

BEGINNING, REFUSED, REST = (5, 6, 7, 8, 9), (10, 11, 12), (13, 14, 15)
"""Token ids of the trial; every vocabulary has them."""


def runner_of(model: Any, max_context: int, wanted: str | None, notice: str = "") -> Runner:
    """Return the runner for a loaded transformers model.

    Args:
        model: a transformers causal LM on its device.
        max_context: most tokens that a sequence can hold.
        wanted: the name of a runner, or None for the best.
        notice: what to tell people beside what is found here.

    Raises:
        EngineError: `unsupported_model`: not even plain decoding can run it;
            `invalid_request`: the runner wanted cannot run it here.
    """
    if wanted == PLAIN:
        return _plain(model, max_context, notice)
    if wanted in (None, GRAPHS) and cuda.can_run(model):
        return cuda.CudaGraphRunner(model, max_context, notice=notice)
    if wanted == GRAPHS:
        raise EngineError(
            "invalid_request",
            f"The runner {GRAPHS} needs one NVIDIA GPU and one of the architectures "
            f"{', '.join(layers.MODEL_TYPES)}; leave the runner out to get what suits this model.",
        )
    eager = EagerRunner(model, max_context, notice=notice)
    if layers.has_common_shape(model.config) or can_roll_back(model, eager):
        return eager
    kind = model.config.model_type
    found = (
        f"{kind} models keep a state that cannot be rolled back, so this one runs a token "
        "at a time, without drafts."
    )
    return _plain(model, max_context, f"{notice} {found}".lstrip())


def can_roll_back(model: Any, runner: Runner) -> bool:
    """Try whether refused tokens leave no trace on a model.

    Whether the class says so is asked first; then some tokens are read, others are rolled
    back, and what follows is compared with a fresh reading.
    """
    if getattr(model, "_is_stateful", False):
        return False
    try:
        cache = runner.new_cache(64, exact=False)
        runner.verify(cache, BEGINNING)
        runner.verify(cache, REFUSED)
        cache.rollback(len(REFUSED))
        after = _one_by_one(runner, cache, REST)
        fresh = runner.verify(runner.new_cache(64, exact=False), [*BEGINNING, *REST])
    except Exception as error:  # whatever a model does with a cache that it does not know
        if is_out_of_memory(error):
            raise
        log.info("%s cannot be rolled back", model.config.model_type, exc_info=True)
        return False
    expected = fresh[-len(REST) :].float()
    # Passes of other shapes round otherwise; a refused token that stays changes far more.
    bound = 1e-3 if fresh.dtype == torch.float32 else 0.05
    return bool((after.float() - expected).norm() <= bound * expected.norm())


def _one_by_one(runner: Runner, cache: KVCache, tokens: Sequence[int]) -> torch.Tensor:
    return torch.cat([runner.verify(cache, [token]) for token in tokens])


def _plain(model: Any, max_context: int, notice: str) -> PlainRunner:
    try:
        runner = PlainRunner(model, max_context, notice)
        cache = runner.new_cache(64)
        runner.verify(cache, BEGINNING)
        _one_by_one(runner, cache, REST)
    except (StopIteration, KeyError) as error:
        raise EngineError(
            "unsupported_model",
            f"{model.config.model_type} models keep their state out of reach, so redraft "
            "cannot run them; choose another model.",
        ) from error
    return runner
