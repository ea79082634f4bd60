"""What `redraft doctor` measures: the staircase, memory, bandwidth; and what to do about it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from engine.cost import CONTEXTS, CostModel, PassPoint, measure
from engine.health_memory import DeviceMemory, device_memory, memory_advice, resident_bytes
from engine.loader import LoadedModel

COPIED_BYTES = 512 << 20
"""Far more than any cache of a CPU holds."""

BUSY_LOAD = 0.5
"""Load of other processes, as a share of the cores, from which figures are doubted."""

DEAR_ROWS = 4.0
"""A pass of 16 rows that costs more than this many single ones leaves drafts little to gain."""


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. Times in seconds, sizes in bytes, rates in bytes a second.

    Attributes:
        points: the measured staircase.
        weight_bytes: read by every pass.
        kv_bytes_a_token: keys and values of one token.
        max_context: tokens of the model's window.
        resident_bytes: of this process with the model; 0 where it cannot be told.
        memory: of the device, with the model loaded.
        copy_rate: bytes read and written by a plain copy.
        load: processes that wanted a core in the last minute, when the check began.
    """

    model: str
    runner: str
    device: str
    dtype: str
    exact: bool
    notice: str
    threads: int
    cores: int
    points: tuple[PassPoint, ...]
    weight_bytes: int
    kv_bytes_a_token: int
    max_context: int
    resident_bytes: int
    memory: DeviceMemory
    copy_rate: float
    load: float

    @property
    def row_seconds(self) -> float:
        """Seconds of a pass of one row at the shortest context."""
        return self.points[0].seconds

    @property
    def plain_rate(self) -> float:
        """Bytes of weights a second that plain decoding reads."""
        return self.weight_bytes / self.row_seconds


def load_now() -> float:
    """Return how many processes wanted a core in the last minute; ask before loading a model."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def examine(
    model: LoadedModel,
    load: float,
    budget_seconds: float = 20.0,
    copied_bytes: int = COPIED_BYTES,
) -> Report:
    """Measure a loaded model; takes about `budget_seconds`.

    Args:
        model: as loaded.
        load: `load_now()` of before it was loaded, so that loading is not held against others.
        budget_seconds: for measuring passes.
        copied_bytes: size of the copy that the bandwidth is taken from.
    """
    runner = model.runner
    longest = runner.max_draft + 1
    cost: CostModel = measure(runner.probe(), longest, budget_seconds, time.monotonic, rounds=9)
    cache = runner.new_cache(1)
    runner.verify(cache, [0])
    return Report(
        model=model.name,
        runner=runner.name,
        device=runner.device,
        dtype=runner.dtype,
        exact=runner.exact,
        notice=runner.notice,
        threads=torch.get_num_threads(),
        cores=usable_cores(),
        points=tuple(cost.points()),
        weight_bytes=runner.weight_bytes,
        kv_bytes_a_token=cache.token_bytes,
        max_context=runner.max_context,
        resident_bytes=resident_bytes(),
        memory=device_memory(runner.device),
        copy_rate=copy_rate(runner.device, copied_bytes),
        load=load,
    )


def copy_rate(device: str, size: int = COPIED_BYTES) -> float:
    """Return bytes read and written a second by a copy of `size` bytes, the best of five."""
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    return 2 * size / min(_seconds(lambda: target.copy_(source), device) for _ in range(5))


def advice(report: Report) -> list[str]:
    """Return what the figures mean for a person, a sentence each."""
    said: list[str] = []
    if report.load > BUSY_LOAD * report.cores:
        said.append(
            f"Other work was using about {report.load:.1f} of {report.cores} cores when this "
            "began, so the times are longer than they could be; close it and look again."
        )
    base = {p.window: p.seconds for p in report.points if p.context == CONTEXTS[0]}
    window, gain = best_window(base)
    if window == 1:
        said.append("Longer passes cost here what their rows cost alone: drafts cannot help.")
    else:
        said.append(
            f"Where everything is copied, passes of {window} rows write up to {gain:.1f} times as "
            "many tokens a second as plain decoding."
        )
    if 16 in base and base[16] > DEAR_ROWS * base[1]:
        said.append("Rows are dear on this device; int8 on an x86 CPU, or a GPU, would do better.")
    if report.device == "cpu" and report.dtype != "int8":
        said.append("The model does not run in int8 here, which is several times slower on a CPU.")
    said += memory_advice(report.memory, report.kv_bytes_a_token, report.max_context, report.device)
    if not report.exact:
        said.append(
            "Drafts may change a token here where two tokens are nearly equally likely, because "
            "this architecture has no exact passes yet."
        )
    if report.notice:
        said.append(report.notice)
    return said


def best_window(seconds: dict[int, float]) -> tuple[int, float]:
    """Return the window with the most rows a second, and how many times a single row's rate."""
    window = max(seconds, key=lambda rows: (rows / seconds[rows], -rows))
    return window, window / seconds[window] * seconds[1]


def contexts_of(points: Sequence[PassPoint]) -> list[int]:
    """Return the contexts that were measured, shortest first."""
    return sorted({point.context for point in points})


def _seconds(work: Callable[[], object], device: str) -> float:
    started = time.perf_counter()
    work()
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter() - started
