"""Keeps what passes cost, by device and model, so that only the first load measures it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import time
from pathlib import Path

import torch

from engine.cost import CostModel, from_json, measure, to_json
from engine.runner import Runner
from engine.store.cache import models_folder, private_folder

log = logging.getLogger(__name__)

FORMAT = 2
BUDGET_SECONDS = 2.0


def cost_of(model: str, runner: Runner) -> CostModel:
    """Return the cost model kept by an earlier run, or measure one and keep it."""
    kept = _read(_file(model, runner))
    if kept is not None:
        return kept
    started = time.monotonic()
    longest = runner.max_draft + 1
    cost = measure(runner.probe(), longest, BUDGET_SECONDS, time.monotonic)
    log.info("measured what passes cost in %.1f s", time.monotonic() - started)
    keep(model, runner, cost)
    return cost


def keep(model: str, runner: Runner, cost: CostModel) -> None:
    """Write the cost model for the next run; a full disk loses nobody more than a measurement."""
    file = _file(model, runner)
    try:
        private_folder(file.parent)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"format": FORMAT, "points": to_json(cost)}), "utf-8")
        draft.replace(file)
    except OSError as error:
        log.warning("what passes cost could not be kept: %s", error)


def _file(model: str, runner: Runner) -> Path:
    machine = [platform.machine(), platform.processor(), os.cpu_count(), torch.get_num_threads()]
    if runner.device.startswith("cuda"):
        machine.append(torch.cuda.get_device_name(runner.device))
    what = [model, runner.name, runner.device, runner.dtype, runner.max_draft, *machine]
    key = hashlib.sha256(json.dumps([*what, torch.__version__]).encode()).hexdigest()[:16]
    return models_folder() / "cost" / f"{key}.json"


def _read(file: Path) -> CostModel | None:
    try:
        kept = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(kept, dict) or kept.get("format") != FORMAT:
        return None
    return from_json(kept.get("points"))
