"""Packs int8 weights on threads of their own.

Packing for FBGEMM is most of the work of a load, and needs nothing but the weights. So it
begins before transformers is imported, and both go on side by side.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch

from engine.int8.linear import pack, rows_a_part
from engine.int8.weights import SCALE, read_tensors


class _Tasks(NamedTuple):
    """The parts of one weight, being packed; their rows and columns."""

    parts: list[Future[Any]]
    shape: tuple[int, int]


class Packing:
    """The weights of one folder of int8 weights, packed or being packed.

    Args:
        folder: as `ensure_int8` returns it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pool = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="pack")
        self._tasks: dict[str, _Tasks] = {}
        tensors = dict(read_tensors(folder))
        for name, weight in tensors.items():
            scale = tensors.get(name + SCALE)
            if scale is not None:
                self._tasks[name] = self._submit(weight, scale)

    def packed(self, name: str) -> tuple[list[Any], tuple[int, int]]:
        """Wait for a weight; return its packed parts and its shape. Asked once for each.

        Raises:
            KeyError: there is no such weight.
        """
        tasks = self._tasks.pop(name)
        return [part.result() for part in tasks.parts], tasks.shape

    def close(self) -> None:
        """Drop what was not asked for."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._tasks.clear()

    def _submit(self, weight: torch.Tensor, scale: torch.Tensor) -> _Tasks:
        rows = rows_a_part(weight)
        parts = zip(weight.split(rows), scale.split(rows), strict=True)
        # A task holds the mapped weight only until it is packed, so that the files' pages
        # are let go of as the packed form grows.
        return _Tasks(
            [self._pool.submit(pack, *part) for part in parts], (weight.shape[0], weight.shape[1])
        )
