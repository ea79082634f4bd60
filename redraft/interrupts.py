"""Ctrl-C, and what ends a process just as well: SIGTERM, and SIGHUP of a closed terminal.

All of them take the same way out: the engine's work is stopped, temporary files are
removed, and a `--json` caller still gets its object.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

_OTHERS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def raise_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, unless they are ignored (`nohup`)."""
    for number in _OTHERS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _interrupt)


def cancel_on_signals(task: asyncio.Task[Any]) -> None:
    """Let the signals cancel the running loop's task; call `raise_on_signals` behind the loop."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, *_OTHERS):
        if signal.getsignal(number) is signal.SIG_IGN:
            continue
        with contextlib.suppress(NotImplementedError):  # Windows: KeyboardInterrupt does it
            loop.add_signal_handler(number, task.cancel)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore the signals inside, for a moment that must not be left half done."""
    before = {n: signal.signal(n, signal.SIG_IGN) for n in (signal.SIGINT, *_OTHERS)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
