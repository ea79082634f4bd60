"""One request on its way through the engine: what the worker and the connection share."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence

from engine.core import Cancelled, EngineError, Event, Finished, GenerationRequest, Progress

Item = Event | EngineError | Cancelled


class Job:
    """A request, its cancel flag, and the events that wait to be sent.

    `put`, `take` and `settle` belong to the event loop's thread. The worker thread only
    reads `request` and `cancelled`. What waits is bounded: text by the request's
    `max_tokens`, and of several reports of progress only the newest stays.
    """

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request
        self.cancelled = threading.Event()
        self.submitted = time.monotonic()
        self.cancelled_at = 0.0
        self.settled = False
        self.before = 0
        self._items: list[Item] = []
        self._ready = asyncio.Event()

    def put(self, item: Item) -> None:
        """Add an event; nothing comes after the end of the answer."""
        if self.settled:
            return
        if isinstance(item, Progress) and self._items and isinstance(self._items[-1], Progress):
            self._items.pop()
        self._items.append(item)
        self.settled = isinstance(item, Finished | EngineError | Cancelled)
        self._ready.set()

    def abandon(self, end: EngineError | Cancelled) -> bool:
        """End the answer now and tell the worker; False when it had ended already."""
        if self.settled:
            return False
        self.cancelled_at = time.monotonic()
        self.cancelled.set()
        self.put(end)
        return True

    async def take(self) -> Sequence[Item]:
        """Wait for events and take all of them, in order."""
        await self._ready.wait()
        self._ready.clear()
        items, self._items = self._items, []
        return items
