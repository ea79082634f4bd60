"""How weights are held: as asked for, else the fastest dtype on this device.

Where the int8 kernels are missing, a CPU or an Apple GPU may be faster in float32 or in a
half, by how old it is; so a matrix product of the model's own shape is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import torch

from engine.core import EngineError

ROWS = 8
"""Rows of the timed product: those of an exact pass on a CPU (engine/eager.py)."""

ROUNDS = 5
MATRIX_LIMIT = 16 << 20
"""Most weights of the timed matrix."""

CLEARLY_FASTER = 0.8
"""A half is taken where it needs less than this part of float32's time; else float32, whose
rounding is the finer."""

CANDIDATES = {
    "cpu": (torch.float32, torch.bfloat16),
    "mps": (torch.float32, torch.float16, torch.bfloat16),
}


class DtypeChoice(NamedTuple):
    """A dtype and, where it was measured, the sentence that says so."""

    dtype: torch.dtype
    notice: str


TimeProduct = Callable[[torch.device, torch.dtype, int, int], float]


def choose_dtype(
    wanted: str | None, config: Any, device: torch.device, time_product: TimeProduct | None = None
) -> DtypeChoice:
    """Return the dtype for a float model.

    Args:
        wanted: `float32`, `bfloat16`, `float16`, or None for the fastest.
        config: the model's transformers config, which gives the shape that is timed.
        device: where it will run.
        time_product: seconds of one product; for tests.

    Raises:
        EngineError: `invalid_request`: no such dtype.
    """
    if wanted is not None:
        return DtypeChoice(_named(wanted), "")
    if device.type == "cuda":
        halves = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
        return DtypeChoice(halves, "")
    candidates = CANDIDATES.get(device.type)
    if candidates is None:
        return DtypeChoice(torch.bfloat16, "")
    fastest = _fastest(candidates, config, device, time_product or product_seconds)
    where = "this CPU" if device.type == "cpu" else "this GPU"
    name = str(fastest).removeprefix("torch.")
    return DtypeChoice(
        fastest,
        f"The int8 kernels do not serve this model here, so it runs in {name}, the fastest "
        f"exact dtype measured on {where}.",
    )


def product_seconds(device: torch.device, dtype: torch.dtype, outputs: int, inputs: int) -> float:
    """Return the median seconds of a product of `ROWS` rows with a matrix `[outputs, inputs]`."""
    weight = torch.zeros(outputs, inputs, dtype=dtype, device=device)
    rows = torch.zeros(ROWS, inputs, dtype=dtype, device=device)
    seconds = []
    with torch.inference_mode():
        for _ in range(ROUNDS + 1):
            started = time.perf_counter()
            torch.nn.functional.linear(rows, weight)[0, 0].item()  # waits for the device
            seconds.append(time.perf_counter() - started)
    return median(seconds[1:])


def _fastest(
    candidates: tuple[torch.dtype, ...],
    config: Any,
    device: torch.device,
    time_product: TimeProduct,
) -> torch.dtype:
    text = config.get_text_config()
    inputs = int(getattr(text, "hidden_size", 1024))
    outputs = int(getattr(text, "intermediate_size", 4 * inputs) or 4 * inputs)
    outputs = max(min(outputs, MATRIX_LIMIT // inputs), 1)
    full, *halves = ((time_product(device, d, outputs, inputs), d) for d in candidates)
    best = min(halves, key=lambda timed: timed[0])
    return best[1] if best[0] < CLEARLY_FASTER * full[0] else full[1]


def _named(name: str) -> torch.dtype:
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise EngineError(
            "invalid_request", f"Unknown dtype {name!r}; use float32, bfloat16 or float16."
        )
    return dtype
