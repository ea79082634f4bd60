"""Tells a lack of memory from other failures, without importing torch."""

from __future__ import annotations

_TEXTS = ("out of memory", "can't allocate memory", "not enough memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` is an allocation that failed, on any device."""
    # By name, because light modules ask that must not import torch.
    names = {cls.__name__ for cls in type(error).__mro__}
    if isinstance(error, MemoryError) or "OutOfMemoryError" in names:
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _TEXTS)
