"""How the CPU's threads wait for each other; must run before torch is imported."""

from __future__ import annotations

import os

SPIN_COUNT = "1000"
"""Turns of the waiting loop before a thread sleeps."""


def limit_spinning() -> None:
    """Let waiting threads of a parallel region sleep early.

    By default they spin for a long time. That is fast on an idle machine, but where an
    editor, a compiler or a browser wants a core too, the spinning threads keep the
    working ones from running, and a pass takes many times as long. The user's own
    settings win.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
