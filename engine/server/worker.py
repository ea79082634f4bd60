"""The one thread that generates, and the bounded queue before it.

Requests are begun first come, first served; where the generator allows it, a few are
answered at once, in turns (engine/server/turns.py). The thread never touches a connection:
it hands events to the event loop, and asks a flag whether the client is still there.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from engine.core import (
    Cancelled,
    EngineError,
    Event,
    Finished,
    GenerationRequest,
    Generator,
    Progress,
    RunnerState,
    Tick,
)
from engine.memory import is_out_of_memory
from engine.server.job import Job
from engine.server.logs import log_failure
from engine.server.metrics import Metrics
from engine.server.turns import Turn, fits

QUEUE_LIMIT = 32

End = Finished | EngineError | Cancelled


class WorkerState(NamedTuple):
    """What the worker is doing, for `/healthz` and the idle stop.

    Attributes:
        active, queued: how many answers are being written, and wait.
        activity: what the first of the active ones does, or None.
        model: name of the loaded model, or None.
        running: how it is run, or None.
        stopping: no further work is taken.
        idle_seconds: time since there was last something to do; 0 while there is.
        kept_sequences, kept_bytes: what the prefix cache holds.
    """

    active: int
    queued: int
    activity: Progress | None
    model: str | None
    stopping: bool
    idle_seconds: float
    running: RunnerState | None = None
    kept_sequences: int = 0
    kept_bytes: int = 0


class Worker:
    """Owns the generator and its thread. All methods are called on the event loop."""

    def __init__(self, make_generator: Callable[[], Generator], metrics: Metrics) -> None:
        self._make_generator = make_generator
        self._metrics = metrics
        self._generator: Generator | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="generate", daemon=True)
        # Guards what follows; held for moments only.
        self._changed = threading.Condition()
        self._waiting: deque[Job] = deque()
        self._turns: list[Turn] = []
        self._stopping = False
        self._idle_since = time.monotonic()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the thread; it builds the generator first, so that imports cost nobody's wait."""
        self._loop = loop
        self._thread.start()

    def submit(self, request: GenerationRequest) -> Job:
        """Queue a request.

        Raises:
            EngineError: `engine_busy` or `engine_stopping`.
        """
        with self._changed:
            if self._stopping:
                raise stopping_error()
            if len(self._waiting) >= QUEUE_LIMIT:
                raise EngineError(
                    "engine_busy",
                    f"{QUEUE_LIMIT} requests already wait for the engine; try again in a moment.",
                )
            job = Job(request)
            self._waiting.append(job)
            self._changed.notify()
        if self._generator is None:
            job.put(Progress("loading", None, "starting"))
        self._announce_positions()
        return job

    def cancel(self, job: Job) -> None:
        """The client has gone: drop the job, or stop it within one pass."""
        if not job.abandon(Cancelled()):
            return
        with self._changed:
            if job in self._waiting:
                self._waiting.remove(job)
                self._metrics.ended("cancelled")
            self._idle_since = time.monotonic()
        self._announce_positions()

    def stop(self) -> None:
        """Take nothing more, end every answer with `engine_stopping`, let the thread end."""
        with self._changed:
            self._stopping = True
            jobs = [*self._waiting, *(turn.job for turn in self._turns)]
            for _ in self._waiting:
                self._metrics.ended("engine_stopping")
            self._waiting.clear()
            self._changed.notify()
        for job in jobs:
            job.abandon(stopping_error())

    def join(self, timeout: float) -> bool:
        """Wait at most `timeout` seconds for the thread; whether it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def state(self) -> WorkerState:
        """What is going on now."""
        with self._changed:
            busy = bool(self._turns or self._waiting)
            sequences, kept_bytes = getattr(self._generator, "kept", (0, 0))
            return WorkerState(
                active=len(self._turns),
                queued=len(self._waiting),
                activity=self._turns[0].activity if self._turns else None,
                model=getattr(self._generator, "loaded_model", None),
                running=getattr(self._generator, "running", None),
                stopping=self._stopping,
                idle_seconds=0.0 if busy else time.monotonic() - self._idle_since,
                kept_sequences=sequences,
                kept_bytes=kept_bytes,
            )

    def _announce_positions(self) -> None:
        with self._changed:
            ahead = len(self._turns)
            places = [(job, ahead + i) for i, job in enumerate(self._waiting)]
        for job, before in places:
            if before and before != job.before:
                job.before = before
                job.put(Progress("queued", None, f"{before} before you"))

    # Everything below runs on the worker's thread.

    def _post(self, function: Callable[..., object], *args: object) -> None:
        assert self._loop is not None
        with suppress(RuntimeError):  # the loop is closed: the process is on its way out
            self._loop.call_soon_threadsafe(function, *args)

    def _run(self) -> None:
        try:
            self._generator = self._make_generator()
        except Exception as error:  # the next request tries again and tells its client
            log_failure("starting", error)
        while self._begin_turns():
            for turn in list(self._turns):
                self._take(turn)
        close = getattr(self._generator, "close", None)
        if close is not None:
            try:
                close()
            except Exception as error:
                log_failure("closing the model", error)

    def _begin_turns(self) -> bool:
        """Wait for work and begin what may be; False when the thread is to end."""
        begun: list[Job] = []
        with self._changed:
            while not self._turns and not self._waiting and not self._stopping:
                self._changed.wait()
            if self._stopping and not self._turns:
                return False
            while self._waiting and fits(self._generator, self._waiting[0].request, self._turns):
                begun.append(self._waiting.popleft())
                self._turns.append(Turn(begun[-1], self._events(begun[-1])))
        if begun:
            self._post(self._announce_positions)
        return True

    def _events(self, job: Job) -> Iterator[Event]:
        if self._generator is None:
            self._generator = self._make_generator()
        yield from self._generator.generate(job.request, job.cancelled.is_set)

    def _take(self, turn: Turn) -> None:
        """One step of one answer; whatever happens becomes the end of that answer only."""
        job = turn.job
        try:
            event = turn.take()
        except BaseException as error:
            event = _end_of(error, cancelled=job.cancelled.is_set())
        if isinstance(event, Tick):
            return
        if not isinstance(event, Finished | EngineError | Cancelled):
            self._post(job.put, event)
            return
        end = self._close(turn, event)
        if job.cancelled.is_set():
            self._metrics.cancel_took(time.monotonic() - job.cancelled_at)
        with self._changed:
            self._turns.remove(turn)
            self._idle_since = time.monotonic()
        self._count(turn, end)
        self._post(job.put, end)
        self._post(self._announce_positions)

    def _close(self, turn: Turn, end: End) -> End:
        try:
            turn.close()
        except BaseException as error:
            return _end_of(error, cancelled=turn.job.cancelled.is_set())
        return end

    def _count(self, turn: Turn, end: End) -> None:
        if turn.first_text_after is not None:
            self._metrics.first_text(turn.first_text_after)
        if isinstance(end, Finished):
            self._metrics.finished(end)
            self._metrics.ended(end.reason)
        else:
            self._metrics.ended("cancelled" if isinstance(end, Cancelled) else end.code)


def stopping_error() -> EngineError:
    """What every client hears from an engine that is on its way out."""
    return EngineError("engine_stopping", "The engine is shutting down; run the rewrite again.")


def _end_of(error: BaseException, *, cancelled: bool) -> EngineError | Cancelled:
    if isinstance(error, Cancelled):
        return error
    if isinstance(error, EngineError):
        return error
    log_failure("generating", error)
    if cancelled:
        return Cancelled()
    if is_out_of_memory(error):
        return EngineError(
            "out_of_memory",
            "The model or its context does not fit into memory; "
            "choose a smaller model or rewrite less at a time.",
        )
    return EngineError(
        "internal", "The engine failed on this request; its log has the details, and it goes on."
    )
