"""The KV cache: one buffer a layer, allocated once; rolling back moves a length.

It is a transformers `Cache`, so any model with ordinary attention layers runs on it. The
difference to transformers' own dynamic cache: appending writes into the buffer instead
of concatenating (which copies the whole cache in every pass), and `rollback` copies
nothing: rejected rows are overwritten before anything attends to them.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

GROWTH = 256
"""Capacity is a multiple of this many tokens."""


class SlotLayer(DynamicLayer):
    """Keys and values of one layer, `[1, heads, capacity, head_dim]`, filled up to `length`."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Allocate both buffers in the shape of the first states seen."""
        self.device = key_states.device
        self.keys = _buffer_like(key_states, self.capacity)
        self.values = _buffer_like(value_states, self.capacity)
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
            self._grow(end)
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """Tokens held."""
        return self.length

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` tokens in all, so that no pass has to."""
        if capacity <= self.capacity:
            return
        if self.is_initialized:
            self._grow(capacity)
        else:
            self.capacity = rounded_up(capacity)

    def _grow(self, needed: int) -> None:
        assert self.keys is not None
        assert self.values is not None
        self.capacity = rounded_up(max(needed, self.capacity + self.capacity // 2))
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = _buffer_like(old, self.capacity)
            new[:, :, : self.length] = old[:, :, : self.length]
            setattr(self, name, new)


class KVCache(Cache):
    """The KV cache of one sequence.

    Attributes:
        tokens: the token ids whose keys and values are held, in order.
        exact: passes on this sequence are exact (engine/runner.py).
        grid: what is kept of the sequence may be cut at multiples of this many tokens.
            With 1 every row's values are usable, those from decoding too; else only
            what was prefilled.
    """

    def __init__(self, layers: int, capacity: int, exact: bool = True, grid: int = 1) -> None:
        super().__init__(layers=[SlotLayer(rounded_up(capacity)) for _ in range(layers)])
        self.tokens: list[int] = []
        self.exact = exact
        self.grid = grid

    @property
    def length(self) -> int:
        """Tokens held."""
        return len(self.tokens)

    def rollback(self, count: int) -> None:
        """Drop the last `count` tokens without copying or touching a byte of the buffers."""
        if not 0 <= count <= self.length:
            raise ValueError(f"cannot roll back {count} of {self.length} tokens")
        del self.tokens[self.length - count :]
        for layer in self.layers:
            layer.length = len(self.tokens)  # type: ignore[attr-defined]

    def reserve(self, capacity: int) -> None:
        """Make room for `capacity` tokens in all."""
        for layer in self.layers:
            layer.reserve(capacity)  # type: ignore[attr-defined]

    def check_integrity(self) -> None:
        """Raise AssertionError unless every layer holds exactly `tokens`; run in tests."""
        lengths = {layer.length for layer in self.layers}  # type: ignore[attr-defined]
        assert lengths == {self.length}, f"layers hold {lengths}, tokens {self.length}"


def rounded_up(tokens: int) -> int:
    """Return the capacity that holds `tokens`: a multiple of `GROWTH`."""
    return -(-max(tokens, 1) // GROWTH) * GROWTH


def common_prefix(a: list[int], b: list[int]) -> int:
    """Return how many first tokens of both are equal."""
    count = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            return count
        count += 1
    return count


def _buffer_like(states: torch.Tensor, capacity: int) -> torch.Tensor:
    shape = (*states.shape[:-2], capacity, states.shape[-1])
    # Zeros: attention by whole blocks reads the unfilled part too, weighed with nothing.
    return torch.zeros(shape, dtype=states.dtype, device=states.device)
