"""Notices that the client's process is gone, where its end does not close our stdin."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

logger = logging.getLogger(__name__)

WATCH_SECONDS = 1.0


async def watch_process(process_id: int, on_gone: Callable[[], None]) -> None:
    """Call `on_gone` once the client's process is gone.

    Args:
        process_id: of the client, for which `can_be_seen` was true.
        on_gone: called once.
    """
    parent = os.getppid()
    # Nothing announces the end of a process that is not our child, so we look.
    while _alive(process_id) and not (parent == process_id != os.getppid()):  # noqa: ASYNC110
        await asyncio.sleep(WATCH_SECONDS)
    logger.warning("the client's process is gone")
    on_gone()


def can_be_seen(process_id: int) -> bool:
    """Whether the process runs here: the client may be on another machine or in a container.

    To be asked before the client hears from us: afterwards it may be gone already.
    """
    return _alive(process_id)


def _alive(process_id: int) -> bool:
    if os.name == "nt":
        # There, os.kill would end the process; the end of stdin has to do.
        return True
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
