"""The KV cache that captured passes work on, and the sequences that take turns in it.

A graph is captured with the addresses of its buffers. So there is one workspace, and the
sequence that runs a pass is brought into it: its keys and values are copied there, and
what the sequence before it had gained is copied back to its own store. On a GPU that
copy is a small part of one pass, and only paid when turns change; graphs for each sequence
would cost memory and seconds of capturing each.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch

from engine.kv_cache import KVCache, rounded_up


class Workspace:
    """Static keys and values of all layers.

    Attributes:
        states: `[2, layers, kv_heads, slots, head_dim]`: keys, then values.
    """

    def __init__(
        self,
        layers: int,
        kv_heads: int,
        slots: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        # Zeros: attention reads slots that were never written, and weighs them with nothing.
        self.states = torch.zeros(2, layers, kv_heads, slots, head_dim, dtype=dtype, device=device)
        self._resident: weakref.ref[SequenceCache] | None = None

    @property
    def slots(self) -> int:
        """Tokens that one sequence can have, the rows that fill its last pass up included."""
        return self.states.shape[3]

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values of one token."""
        return self.states.nbytes // self.slots

    def holds(self, sequence: SequenceCache) -> bool:
        """Return whether the sequence is the one that is here."""
        return self._resident is not None and self._resident() is sequence

    def bring_in(self, sequence: SequenceCache) -> None:
        """Let the sequence be the one that passes work on."""
        if self.holds(sequence):
            return
        leaving = self._resident() if self._resident is not None else None
        if leaving is not None:
            leaving.store()
        if sequence.stored is not None and sequence.length:
            kept = sequence.stored[..., : sequence.length, :]
            self.states[..., : sequence.length, :].copy_(kept)
        self._resident = weakref.ref(sequence)


class SequenceCache(KVCache):
    """The KV cache of one sequence, in the workspace or in a store of its own.

    Attributes:
        stored: keys and values of the first `stored_tokens` tokens, or None.
    """

    def __init__(self, workspace: Workspace, exact: bool, grid: int) -> None:
        super().__init__(layers=0, capacity=1, exact=exact, grid=grid)
        self._workspace = workspace
        self.stored: torch.Tensor | None = None
        self.stored_tokens = 0

    def store(self) -> None:
        """Copy what the workspace has gained of this sequence into its own store."""
        if not self._workspace.holds(self) or self.stored_tokens == self.length:
            return
        if self.stored is None or self.stored.shape[3] < self.length:
            self._resize(self.length)
        assert self.stored is not None
        new = slice(self.stored_tokens, self.length)
        self.stored[..., new, :] = self._workspace.states[..., new, :]
        self.stored_tokens = self.length

    def rollback(self, count: int) -> None:
        """Drop the last `count` tokens; copies nothing."""
        super().rollback(count)
        self.stored_tokens = min(self.stored_tokens, self.length)

    @torch.inference_mode()  # as the passes were that wrote them
    def _move(self, slots: Sequence[int], start: int) -> None:
        assert self._workspace.holds(self)
        states = self._workspace.states
        states[..., start : start + len(slots), :] = states[..., list(slots), :]
        self.stored_tokens = min(self.stored_tokens, start)

    @property
    def bytes(self) -> int:
        """Bytes of its store, or what that will take when it is written."""
        if self.stored is not None and self.stored.shape[3] >= self.length:
            return self.stored.nbytes
        return rounded_up(self.length) * self._workspace.token_bytes if self.length else 0

    @property
    def token_bytes(self) -> int:
        """Bytes of keys and values of one token."""
        return self._workspace.token_bytes

    def reserve(self, capacity: int) -> None:
        """Do nothing: the workspace has room for any sequence."""

    def trim(self) -> None:
        """Let go of the room in the store that is not filled."""
        self.store()
        if self.stored is not None and rounded_up(self.length) < self.stored.shape[3]:
            self._resize(self.length)

    def copy_prefix(self, length: int, capacity: int) -> SequenceCache:
        """Return a sequence of its own with the first `length` tokens."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot copy {length} of {self.length} tokens")
        self.store()
        copy = SequenceCache(self._workspace, self.exact, self.grid)
        copy.tokens = self.tokens[:length]
        if length:
            assert self.stored is not None
            copy._resize(length)
            assert copy.stored is not None
            copy.stored[..., :length, :] = self.stored[..., :length, :]
            copy.stored_tokens = length
        return copy

    def check_integrity(self) -> None:
        """Raise AssertionError unless all tokens are held somewhere; run in tests."""
        assert self.stored_tokens <= self.length
        assert self._workspace.holds(self) or self.stored_tokens == self.length

    def _resize(self, tokens: int) -> None:
        shape = list(self._workspace.states.shape)
        shape[3] = rounded_up(tokens)
        larger = self._workspace.states.new_zeros(shape)
        if self.stored is not None:
            larger[..., : self.stored_tokens, :] = self.stored[..., : self.stored_tokens, :]
        self.stored = larger
