"""Packs int8 weights on threads of their own.

Packing for FBGEMM is most of the work of a load, and needs nothing but the weights. So it
begins before transformers is imported and goes on beside all that follows; a pass that
cannot wait runs on weights that are not packed yet (engine/int8/unpacked.py).
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import torch

from engine.int8.linear import Weight
from engine.int8.weights import SCALE, read_tensors
from engine.memory import give_back_free_memory

NICENESS = 10
"""Packing steps back where other work wants the core."""


class Packing:
    """The weights of one folder, packed or being packed.

    Args:
        folder: as `ensure_int8` returns it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tensors = dict(read_tensors(folder))
        self._weights = {
            name: Weight(tensor, tensors[name + SCALE])
            for name, tensor in tensors.items()
            if name + SCALE in tensors
        }
        self._pool = ThreadPoolExecutor(torch.get_num_threads(), "pack", _step_back)
        # The largest first, so that no core waits for the output layer at the end.
        largest_first = sorted(
            self._weights.values(), key=lambda weight: -weight.out_features * weight.in_features
        )
        self._tasks: list[Future[None]] = [
            self._pool.submit(_pack, weight) for weight in largest_first
        ]

    def weight(self, name: str) -> Weight:
        """Return a weight, which may be used at once.

        Raises:
            KeyError: there is no such weight.
        """
        return self._weights[name]

    def is_done(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds, None for as long as it takes; raise what packing did."""
        done, going_on = wait(self._tasks, timeout)
        for task in done:
            if not task.cancelled():
                task.result()
        self._tasks = list(going_on)
        return not self._tasks

    def close(self) -> None:
        """Stop after the weights that are being packed now."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _pack(weight: Weight) -> None:
    weight.pack()
    # Packing frees a block for each that it makes; without this the process would grow to
    # a gigabyte more than it needs.
    give_back_free_memory()


def _step_back() -> None:
    if sys.platform == "linux":  # elsewhere niceness belongs to whole processes
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
