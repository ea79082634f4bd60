"""The KV cache: one buffer a layer, allocated once; rolling back moves a length.

Appending writes into the buffer instead of concatenating (which copies the whole cache in
every pass), and `rollback` copies nothing: rejected rows are overwritten before anything
attends to them. (No transformers here: its import would cost every start seconds. Its models
run on the subclasses in engine/eager.py.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

GROWTH = 256
"""Capacity is a multiple of this many tokens."""

_BLOCK = 1024
"""Tokens compared at a time, in C, before the place of a difference is looked for."""


class SlotLayer:
    """Keys and values of one layer, `[1, heads, capacity, head_dim]`, filled up to `length`."""

    def __init__(self, capacity: int) -> None:
        self.keys: torch.Tensor | None = None
        self.values: torch.Tensor | None = None
        self.is_initialized = False
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate both buffers in the shape of the first states seen."""
        keys = _buffer_like(key_states, self.capacity)
        values = _buffer_like(value_states, self.capacity)
        # Only when both are there: an allocation that fails changes nothing.
        self.keys, self.values = keys, values
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append states `[1, heads, rows, head_dim]`; return views of all that is filled."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        end = self.length + key_states.shape[-2]
        if end > self.capacity:
            # In steps: an answer may be much shorter than it was allowed to be.
            self._resize(max(end, self.capacity + max(self.capacity // 4, GROWTH)))
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    @property
    def bytes(self) -> int:
        """Bytes allocated, filled or not."""
        if not self.is_initialized:
            return 0
        assert self.keys is not None
        assert self.values is not None
        return self.keys.nbytes + self.values.nbytes

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` tokens in all, so that no pass has to."""
        if capacity > self.capacity:
            self._resize(capacity)

    def trim(self) -> None:
        """Let go of the capacity that is not filled."""
        if rounded_up(self.length) < self.capacity:
            self._resize(self.length)

    @torch.inference_mode()  # as the passes were that wrote them
    def move(self, slots: Sequence[int], start: int) -> None:
        """Copy what stands in `slots` to the slots from `start` on."""
        if not self.is_initialized:
            return
        for states in (self.keys, self.values):
            assert states is not None
            states[:, :, start : start + len(slots)] = states[:, :, list(slots)]

    def copy_prefix(self, length: int, capacity: int) -> SlotLayer:
        """Return a layer of its own with the first `length` tokens and room for `capacity`."""
        copy = type(self)(rounded_up(max(length, capacity)))
        if self.is_initialized:
            assert self.keys is not None
            assert self.values is not None
            copy.lazy_initialization(self.keys, self.values)
            copy.keys[:, :, :length] = self.keys[:, :, :length]  # type: ignore[index]
            copy.values[:, :, :length] = self.values[:, :, :length]  # type: ignore[index]
        copy.length = length
        return copy

    def _resize(self, capacity: int) -> None:
        capacity = rounded_up(capacity)
        if self.is_initialized:
            copy = self.copy_prefix(self.length, capacity)
            self.keys, self.values = copy.keys, copy.values
        self.capacity = capacity


class KVCache:
    """The KV cache of one sequence.

    Attributes:
        tokens: the token ids whose keys and values are held, in order.
        exact: passes on this sequence are exact (engine/runner.py).
        grid: what is kept of the sequence may be cut at multiples of this many tokens.
            With 1 every row's values are usable, those from decoding too; else only
            what was prefilled.
    """

    layer_type = SlotLayer

    def __init__(self, layers: int, capacity: int, exact: bool = True, grid: int = 1) -> None:
        self.layers = [self.layer_type(rounded_up(capacity)) for _ in range(layers)]
        self.tokens: list[int] = []
        self.exact = exact
        self.grid = grid

    @property
    def length(self) -> int:
        """Tokens held."""
        return len(self.tokens)

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values of one token; 0 where that is not known (yet)."""
        return self.bytes // self.layers[0].capacity if self.layers else 0

    def update(
        self,
        key_states: torch.Tensor,
        value_states: torch.Tensor,
        layer_idx: int,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append states to one layer; see `SlotLayer.update`. `tokens` is left to the caller."""
        return self.layers[layer_idx].update(key_states, value_states)

    def rollback(self, count: int) -> None:
        """Drop the last `count` tokens without copying or touching a byte of the buffers."""
        if not 0 <= count <= self.length:
            raise ValueError(f"cannot roll back {count} of {self.length} tokens")
        del self.tokens[self.length - count :]
        for layer in self.layers:
            layer.length = len(self.tokens)

    def keep(self, path: Sequence[int], start: int) -> None:
        """Of what was appended from slot `start` on keep one path; drop the rest.

        Only rows that stand elsewhere than they belong are moved, so none is where the
        path is a beginning of what was appended.

        Args:
            path: what was appended, counted from `start`, in rising order.
            start: tokens held before.
        """
        if not all(a < b for a, b in pairwise([-1, *path, self.length - start])):
            raise ValueError(f"cannot keep {list(path)} of {self.length - start} tokens")
        same = 0
        while same < len(path) and path[same] == same:
            same += 1
        moved = [start + row for row in path[same:]]
        if moved:
            self._move(moved, start + same)
            self.tokens[start + same : start + len(path)] = [self.tokens[slot] for slot in moved]
        self.rollback(self.length - start - len(path))

    def _move(self, slots: Sequence[int], start: int) -> None:
        for layer in self.layers:
            layer.move(slots, start)

    @property
    def bytes(self) -> int:
        """Bytes allocated for keys and values, filled or not; 0 before the first pass."""
        return sum(layer.bytes for layer in self.layers)

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` tokens in all.

        Where the memory for it is not there, what is held stays as it was.
        """
        for layer in self.layers:
            layer.reserve(capacity)

    def trim(self) -> None:
        """Let go of the capacity that is not filled; a layer at a time, as `reserve`."""
        for layer in self.layers:
            layer.trim()

    def copy_prefix(self, length: int, capacity: int) -> KVCache:
        """Return a cache of its own with the first `length` tokens.

        Args:
            length: how many of the tokens held.
            capacity: tokens that the copy has room for, at least `length`.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot copy {length} of {self.length} tokens")
        copy = type(self)(0, capacity, self.exact, self.grid)
        copy.layers = [layer.copy_prefix(length, capacity) for layer in self.layers]
        copy.tokens = self.tokens[:length]
        return copy

    def check_integrity(self) -> None:
        """Raise AssertionError unless every layer holds exactly `tokens`; run in tests."""
        lengths = {layer.length for layer in self.layers}
        assert lengths == {self.length}, f"layers hold {lengths}, tokens {self.length}"


def rounded_up(tokens: int) -> int:
    """Return the capacity that holds `tokens`: a multiple of `GROWTH`."""
    return -(-max(tokens, 1) // GROWTH) * GROWTH


def common_prefix(a: list[int], b: list[int]) -> int:
    """Return how many first tokens of both are equal."""
    limit = min(len(a), len(b))
    count = 0
    while count < limit and a[count : count + _BLOCK] == b[count : count + _BLOCK]:
        count += _BLOCK
    while count < limit and a[count] == b[count]:
        count += 1
    return min(count, limit)


def _buffer_like(states: torch.Tensor, capacity: int) -> torch.Tensor:
    shape = (*states.shape[:-2], capacity, states.shape[-1])
    # Zeros: attention by whole blocks reads the unfilled part too, weighed with nothing.
    return torch.zeros(shape, dtype=states.dtype, device=states.device)
