"""Loads a model folder: weights on a device, tokenizer, end tokens.

safetensors only, and no code of a checkpoint is ever run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine.chat import Chat
from engine.core import (
    Cancelled,
    EngineError,
    IsCancelled,
    OnProgress,
    ignore_progress,
    never_cancelled,
)
from engine.cost import CostModel, even
from engine.dtypes import choose_dtype
from engine.int8.model import begin_packing, can_run_int8, load_int8_model, make_int8
from engine.int8.packing import Packing
from engine.int8.runner import Int8Runner
from engine.layers import MODEL_TYPES
from engine.memory import without_collecting
from engine.placement import Placement, placed
from engine.ready import Ready, keep, read
from engine.runner import Runner
from engine.vocabulary import vocabulary_of
from engine.window import Acceptance

log = logging.getLogger(__name__)

INT8 = Int8Runner.name
RUNNERS = (INT8, "cuda-graphs", "eager", "plain")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model that is ready to run.

    Attributes:
        name: as the user asked for it.
        runner: runs it.
        chat: encodes its prompts.
        tokenizer: the bare `tokenizers.Tokenizer`.
        end_tokens: ids that end an answer.
        cost: what its passes cost here; a guess until it is measured (engine/cost_store.py).
        acceptance: what was learnt about drafts for it.
    """

    name: str
    runner: Runner
    chat: Chat
    tokenizer: Any
    end_tokens: frozenset[int]
    cost: CostModel = field(default_factory=even)
    acceptance: Acceptance = field(default_factory=Acceptance)


def load_model(
    name: str,
    folder: Path,
    device: str | None,
    dtype: str | None,
    on_progress: OnProgress = ignore_progress,
    is_cancelled: IsCancelled = never_cancelled,
    wait: bool = True,
    runner: str | None = None,
) -> LoadedModel:
    """Load the model in `folder`.

    Args:
        name: what to call it.
        folder: Hugging Face layout with safetensors.
        device: `cpu`, `cuda`, `mps`, ...; None picks CUDA, then MPS, then the CPU; `auto`
            spreads a model over all GPUs of this machine.
        dtype: `int8` (CPU only), `float32`, `bfloat16`, `float16`; None is int8 on a CPU
            that can run it, else the fastest (engine/dtypes.py).
        on_progress: told about the conversion to int8, which is made once.
        is_cancelled: asked during that.
        wait: until the weights are packed; else the first passes are slower.
        runner: one of `RUNNERS`; None picks the fastest that is exact.

    Raises:
        EngineError: `unsupported_model`, `out_of_memory`, `disk_full`, `invalid_request`.
        Cancelled: `is_cancelled` answered True.
    """
    _use_all_cores()
    place = placed(device)
    with _loading_errors(name, place.device), without_collecting(), ExitStack() as stack:
        packing = None
        if place.device.type == "cpu" and _may_be_int8(dtype, runner):
            # Before anything else, because it goes on beside the slow imports that follow.
            packing = begin_packing(folder)
            stack.callback(packing.close if packing else lambda: None)
        ready = kept = read(packing.folder, folder) if packing else None
        if ready is None:
            ready = _read_by_transformers(name, folder)
        config, vocabulary = ready
        chat = Chat(vocabulary)
        window = int(getattr(config.get_text_config(), "max_position_embeddings", 4096))
        loaded: Runner
        if _wants_int8(config, place.device, dtype, runner):
            made = make_int8(folder, config, on_progress, is_cancelled)
            if packing is None or packing.folder != made:
                packing = Packing(made)
                stack.callback(packing.close)
            loaded = Int8Runner(load_int8_model(folder, config, packing), window, packing)
            if kept is None:
                keep(made, folder, ready)
            if wait:
                packing.is_done()
            stack.pop_all()  # from here on the runner closes it
        else:
            loaded = _float_runner(folder, config, place, dtype, runner, window)
        return LoadedModel(name, loaded, chat, vocabulary.tokenizer, vocabulary.end_tokens)


def _read_by_transformers(name: str, folder: Path) -> Ready:
    from transformers import AutoConfig, AutoTokenizer

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    return Ready(config, vocabulary_of(name, tokenizer, folder, config))


def _float_runner(
    folder: Path,
    config: Any,
    place: Placement,
    dtype: str | None,
    runner: str | None,
    window: int,
) -> Runner:
    from engine.choice import runner_of

    held = choose_dtype(dtype, config, place.device)
    notice = held.notice if runner is None else ""
    return runner_of(_load_float(folder, config, place, held.dtype), window, runner, notice)


def _load_float(folder: Path, config: Any, place: Placement, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder,
        config=config,
        dtype=dtype,
        use_safetensors=True,
        trust_remote_code=False,
        attn_implementation="sdpa",
        device_map=place.device_map,
        output_loading_info=True,
    )
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        # transformers would fill them with random numbers.
        raise EngineError("unsupported_model", f"{folder} lacks the weights {missing[0]}.")
    return model if place.device_map else model.to(place.device)


def _may_be_int8(dtype: str | None, runner: str | None) -> bool:
    return dtype in (None, "int8") and runner in (None, INT8)


def _wants_int8(config: Any, device: torch.device, dtype: str | None, runner: str | None) -> bool:
    if runner not in (None, *RUNNERS):
        raise EngineError(
            "invalid_request", f"There is no runner {runner!r}; choose one of {', '.join(RUNNERS)}."
        )
    asked = dtype == "int8" or runner == INT8
    if not _may_be_int8(dtype, runner):
        if asked:
            raise EngineError(
                "invalid_request",
                f"The dtype {dtype} and the runner {runner} do not go together; "
                "leave one of them out.",
            )
        return False
    if device.type == "cpu" and can_run_int8(config):
        return True
    if asked:
        raise EngineError(
            "invalid_request",
            f"int8 runs only on x86 CPUs and for the architectures {', '.join(MODEL_TYPES)}; "
            "leave the dtype and the runner out to get what suits this machine.",
        )
    return False


@contextmanager
def _loading_errors(name: str, device: torch.device) -> Iterator[None]:
    """Turn what transformers and torch raise while loading into errors for people."""
    try:
        yield
    except (EngineError, Cancelled):
        raise
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise EngineError(
            "out_of_memory",
            f"{name} does not fit into the memory of {device}; take a smaller model "
            "or free some memory.",
        ) from error
    except Exception as error:  # a damaged folder makes transformers raise anything
        log.warning("%s could not be loaded", name, exc_info=True)
        raise EngineError(
            "unsupported_model", f"{name} could not be loaded: {_first_line(error)}"
        ) from error


def _use_all_cores() -> None:
    # Half the logical cores are hyper-threads on most machines, but the operating
    # system's own count of usable cores is right in containers.
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(max(1, usable or 1))


def _first_line(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing."
    text = str(error).strip().splitlines()
    return f"{text[0].rstrip('.')}." if text else f"{type(error).__name__}."
