from __future__ import annotations

import asyncio
import subprocess
import sys

from lsp_server.process_watch import can_be_seen, watch_process


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


async def test_a_process_that_ended_before_the_first_look_is_noticed() -> None:
    gone = asyncio.Event()
    await asyncio.wait_for(watch_process(ended_process(), gone.set), 5)
    assert gone.is_set()


def test_a_process_that_is_not_here_cannot_be_seen() -> None:
    assert not can_be_seen(ended_process())
    running = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert can_be_seen(running.pid)
    running.communicate()
