"""The header of a GGUF file: its metadata and the table of its tensors.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little
endian). The gguf package's own reader makes a numpy view of every string and needs 20 s for
a vocabulary of 150 000 tokens; this one walks over the bytes once.
"""

from __future__ import annotations

import mmap
import struct
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_SCALARS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_MAX_DIMENSIONS = 8
# A count above this is damage; the largest vocabularies have under 300 000 tokens.
_MAX_COUNT = 20_000_000


class GgufDamaged(Exception):
    """The file is no GGUF file or ends too early; the message is for people."""


class TensorInfo(NamedTuple):
    """One row of the tensor table.

    Attributes:
        name: GGUF's name, e.g. `blk.0.attn_q.weight`.
        shape: in torch's order, slowest dimension first.
        kind: the number of the ggml type.
        start: of its bytes in the file.
        size: in bytes.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    start: int
    size: int


class Header(NamedTuple):
    """What a GGUF file says before its tensor data.

    Attributes:
        metadata: scalars, strings and arrays of scalars; an array of strings is its count.
        tensors: the tensor table.
        slim: the same header as a small GGUF file of its own: without the arrays of the
            tokenizer, and each tensor as a single number. For readers that are slow with the
            whole one.
    """

    metadata: dict[str, Any]
    tensors: tuple[TensorInfo, ...]
    slim: bytes

    @property
    def architecture(self) -> str:
        """E.g. `qwen2`."""
        return str(self.metadata["general.architecture"])


class _Cursor:
    """Reads forward over a buffer and never past its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def unpack(self, code: str, count: int = 1) -> tuple[Any, ...]:
        layout = struct.Struct(f"<{count}{code}")
        values = layout.unpack(self.take(layout.size))
        return values

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise GgufDamaged("it ends in the middle of its header")
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def text(self) -> str:
        (size,) = self.unpack("Q")
        return self.take(size).decode("utf-8", "replace")

    def count(self) -> int:
        (count,) = self.unpack("Q")
        if count > _MAX_COUNT:
            raise GgufDamaged(f"its header claims {count} entries")
        return count

    def value(self, kind: int) -> Any:
        if kind in _SCALARS:
            return self.unpack(_SCALARS[kind])[0]
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            raise GgufDamaged(f"its header has a value of the unknown type {kind}")
        (item_kind,) = self.unpack("I")
        count = self.count()
        if item_kind in _SCALARS:
            return list(self.unpack(_SCALARS[item_kind], count))
        if item_kind != _STRING:
            raise GgufDamaged(f"its header has an array of the unknown type {item_kind}")
        for _ in range(count):
            self.take(self.unpack("Q")[0])
        return count


def read_header(path: Path) -> Header:
    """Read the header of the GGUF file at `path` and check that its tensors lie in the file.

    Raises:
        GgufDamaged: no GGUF file, an unknown version, or a truncated one.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        if file.read(4) != _MAGIC:
            raise GgufDamaged("it does not start with the GGUF mark")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(data)


def _parse(data: mmap.mmap) -> Header:
    cursor = _Cursor(data)
    cursor.take(len(_MAGIC))
    (version,) = cursor.unpack("I")
    if version not in _VERSIONS:
        raise GgufDamaged(f"it has GGUF version {version}, and only 2 and 3 are known")
    tensor_count, pair_count = cursor.count(), cursor.count()
    metadata: dict[str, Any] = {}
    kept: list[bytes] = []
    for _ in range(pair_count):
        start = cursor.at
        key = cursor.text()
        (kind,) = cursor.unpack("I")
        metadata[key] = cursor.value(kind)
        if not (key.startswith("tokenizer.") and kind == _ARRAY) and key != "general.alignment":
            kept.append(data[start : cursor.at])
    if "general.architecture" not in metadata:
        raise GgufDamaged("it does not say which architecture it holds")
    rows = [_table_row(cursor) for _ in range(tensor_count)]
    alignment = int(metadata.get("general.alignment", 32)) or 32
    data_start = -(-cursor.at // alignment) * alignment
    tensors = tuple(_placed(row, data_start, len(data)) for row in rows)
    return Header(metadata, tensors, _slim(version, kept, [t.name for t in tensors]))


def _table_row(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    name = cursor.text()
    (dimensions,) = cursor.unpack("I")
    if dimensions > _MAX_DIMENSIONS:
        raise GgufDamaged(f"its tensor {name[:60]!r} claims {dimensions} dimensions")
    shape = tuple(reversed(cursor.unpack("Q", dimensions)))
    kind, offset = *cursor.unpack("I"), *cursor.unpack("Q")
    return name, shape, kind, offset


def _placed(
    row: tuple[str, tuple[int, ...], int, int], data_start: int, file_size: int
) -> TensorInfo:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    name, shape, kind, offset = row
    try:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(kind)]
    except (ValueError, KeyError):
        reason = f"its tensor {name[:60]!r} has the unknown number format {kind}"
        raise GgufDamaged(reason) from None
    size = prod(shape) // block * block_bytes
    start = data_start + offset
    if start + size > file_size:
        raise GgufDamaged(f"it ends before its tensor {name[:60]!r} does")
    return TensorInfo(name, shape, kind, start, size)


def _slim(version: int, pairs: list[bytes], names: list[str]) -> bytes:
    parts = [_MAGIC, struct.pack("<IQQ", version, len(names), len(pairs)), *pairs]
    for name in names:
        raw = name.encode()
        parts.append(struct.pack("<Q", len(raw)) + raw + struct.pack("<IQIQ", 1, 1, 0, 0))
    head = b"".join(parts)
    return head + bytes(-len(head) % 32 + 32)
