"""A lack of memory told from other failures, and memory given back; without torch."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

_TEXTS = ("out of memory", "can't allocate memory", "not enough memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether `error` is an allocation that failed, on any device."""
    # By name, because light modules ask that must not import torch.
    names = {cls.__name__ for cls in type(error).__mro__}
    if isinstance(error, MemoryError) or "OutOfMemoryError" in names:
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _TEXTS)


def give_back_free_memory() -> None:
    """Return to the system what the C library holds of freed blocks (glibc's malloc_trim).

    After many large blocks of different sizes that can be a quarter of a process.
    """
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library
        return
    trim(0)


@contextmanager
def without_collecting() -> Iterator[None]:
    """Let Python look for garbage later: a tokenizer makes a million objects, none of it."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
