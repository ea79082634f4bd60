"""Unpacks the tensors of a GGUF file into one safetensors file, a piece at a time.

Everything is stored in bfloat16: transformers loads a model in one dtype, so a norm kept in
float32 would be rounded at every load instead of once, and the file could not be mapped. The
published norms and biases are bfloat16 numbers to begin with.

safetensors: 8 bytes with the length of a JSON header, the header, then the bytes of each
tensor in the order of the header (https://github.com/huggingface/safetensors#format). As all
shapes are known before, the header is written first and the pieces in any order.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from math import prod
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from gguf import GGMLQuantizationType, dequantize

from engine.core import Cancelled, EngineError, IsCancelled
from engine.gguf_convert import rope
from engine.gguf_convert.header import TensorInfo
from engine.gguf_convert.naming import Target

_BYTES = 2  # of a bfloat16
# Numbers in one call of `dequantize`: its temporary arrays then stay in the processor's
# cache. Measured on 2 cores: 300 M numbers a second, and 30 M with the package's own groups.
_CALL = 256 * 1024
_PIECE = 16 * _CALL
_MAX_THREADS = 8
# The first is read into the config; the second is a copy of the embeddings where they are tied.
_OTHERWISE_USED = {rope.TENSOR, "output.weight"}


class _Piece(NamedTuple):
    tensor: TensorInfo
    name: str
    first_row: int
    rows: int


def write_weights(
    source: Path,
    tensors: tuple[TensorInfo, ...],
    target: Target,
    out: Path,
    on_fraction: Callable[[float], None],
    is_cancelled: IsCancelled,
) -> None:
    """Unpack `tensors` of the GGUF file `source` into the new safetensors file `out`.

    Raises:
        EngineError: `unsupported_model` when weights are missing or have another shape.
        Cancelled: `is_cancelled` answered True.
        OSError: `out` cannot be written, e.g. the disk is full.
    """
    names = target.names
    wanted = [(tensor, names[tensor.name]) for tensor in tensors if tensor.name in names]
    _check_complete(source, tensors, wanted, target)
    starts, header = _layout(target.shapes)
    total = sum(prod(target.shapes[name]) for _, name in wanted)
    done = 0
    with source.open("rb") as file, out.open("wb") as output:
        output.write(header)
        output.truncate(len(header) + _BYTES * sum(map(prod, target.shapes.values())))
        # numpy keeps the mapping open as long as a piece looks at it, so it is not closed here.
        packed = np.memmap(file, np.uint8, "r")
        writer = _Writer(output, packed, target, starts)
        for count in _in_threads(writer.write, _pieces(wanted, target), is_cancelled):
            done += count
            on_fraction(done / total)
        output.flush()
        os.fsync(output.fileno())


class _Writer:
    """Writes pieces into their places; `write` may be called on several threads."""

    def __init__(
        self, output: BinaryIO, packed: np.ndarray, target: Target, starts: dict[str, int]
    ) -> None:
        self.output = output
        self.packed = packed
        self.target = target
        self.starts = starts
        self.lock = threading.Lock()

    def write(self, piece: _Piece) -> int:
        """Unpack and write one piece; returns how many numbers it has."""
        tensor, name, first_row, rows = piece
        numbers = unpack_rows(self.packed, tensor, first_row, rows)
        if self.target.transform is not None:
            weights = self.target.transform(numbers.reshape(tensor.shape), tensor.name)
            numbers = np.ascontiguousarray(weights)
        width = prod(tensor.shape[1:])
        raw = to_bfloat16(numbers.reshape(-1))
        with self.lock:
            self.output.seek(self.starts[name] + first_row * width * _BYTES)
            self.output.write(raw.data)
        return raw.size


def unpack_rows(packed: np.ndarray, tensor: TensorInfo, first_row: int, rows: int) -> np.ndarray:
    """Rows `first_row` to `first_row + rows` of a tensor as one flat float32 array.

    `packed` holds the bytes of the whole file.
    """
    kind = GGMLQuantizationType(tensor.kind)
    row_bytes = tensor.size // tensor.shape[0]
    start = tensor.start + first_row * row_bytes
    width = prod(tensor.shape[1:])
    step = max(1, _CALL // width)
    out = np.empty(rows * width, np.float32)
    for row in range(0, rows, step):
        count = min(step, rows - row)
        raw = packed[start + row * row_bytes : start + (row + count) * row_bytes]
        # As one long row: the package would cut several rows into groups of 16.
        out[row * width : (row + count) * width] = dequantize(raw.reshape(1, -1), kind).reshape(-1)
    return out


def to_bfloat16(numbers: np.ndarray) -> np.ndarray:
    """Round float32 numbers to bfloat16, half to even; returns their bits as uint16."""
    import torch

    return torch.from_numpy(numbers).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)


def _pieces(wanted: list[tuple[TensorInfo, str]], target: Target) -> Iterator[_Piece]:
    for tensor, name in wanted:
        rows = tensor.shape[0]
        step = rows
        if target.transform is None:
            step = max(1, _PIECE // prod(tensor.shape[1:]))
        for first in range(0, rows, step):
            yield _Piece(tensor, name, first, min(step, rows - first))


def _in_threads(
    work: Callable[[_Piece], int], pieces: Iterator[_Piece], is_cancelled: IsCancelled
) -> Iterator[int]:
    """Yield `work(piece)` as they end; few are in the air at once, which bounds the memory."""
    threads = max(1, min(_MAX_THREADS, os.cpu_count() or 1))
    with ThreadPoolExecutor(threads, "convert") as pool:
        running: set[Future[int]] = set()
        try:
            for piece in pieces:
                running.add(pool.submit(work, piece))
                if len(running) < threads + 1:
                    continue
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield future.result()
                if is_cancelled():
                    raise Cancelled
            for future in running:
                yield future.result()
        finally:
            for future in running:
                future.cancel()


def _check_complete(
    source: Path,
    tensors: tuple[TensorInfo, ...],
    wanted: list[tuple[TensorInfo, str]],
    target: Target,
) -> None:
    missing = set(target.shapes) - {name for _, name in wanted}
    if missing:
        raise EngineError(
            "unsupported_model",
            f"{source.name} lacks {len(missing)} of the model's tensors, e.g. {min(missing)!r}; "
            "give another GGUF file or the safetensors repository of the model.",
        )
    left_over = {t.name for t in tensors} - {t.name for t, _ in wanted} - _OTHERWISE_USED
    if left_over:
        raise EngineError(
            "unsupported_model",
            f"{source.name} has {len(left_over)} tensors that the model has no place for, e.g. "
            f"{min(left_over)!r}; give the safetensors repository of the model.",
        )
    for tensor, name in wanted:
        if prod(tensor.shape) != prod(target.shapes[name]):
            raise EngineError(
                "unsupported_model",
                f"{source.name} has {tensor.name!r} of the shape {list(tensor.shape)} where "
                f"{list(target.shapes[name])} is expected; give another file of the model.",
            )


def _layout(shapes: dict[str, tuple[int, ...]]) -> tuple[dict[str, int], bytes]:
    """Where each tensor starts in the file, and the file's header."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offsets: dict[str, int] = {}
    at = 0
    for name, shape in shapes.items():
        size = prod(shape) * _BYTES
        entries[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        offsets[name] = at
        at += size
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 64 + 56)  # so that the data starts at a multiple of 64
    head = len(text).to_bytes(8, "little") + text
    return {name: len(head) + offset for name, offset in offsets.items()}, head
