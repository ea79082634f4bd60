"""A KV cache that finds no memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

import engine.kv_cache


@contextmanager
def failing_allocations(monkeypatch: pytest.MonkeyPatch, allowed: int) -> Iterator[None]:
    """Let the KV cache allocate `allowed` buffers, then fail as torch does on a CPU."""
    allocate = engine.kv_cache._buffer_like
    left = [allowed]

    def buffer_like(states: torch.Tensor, capacity: int) -> torch.Tensor:
        if not left[0]:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to ...")
        left[0] -= 1
        return allocate(states, capacity)

    with monkeypatch.context() as patch:
        patch.setattr(engine.kv_cache, "_buffer_like", buffer_like)
        yield
