"""The life of the engine's process: one at a time, found by a file, gone when idle."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from filelock import FileLock, Timeout

from engine.core import Generator
from engine.server.app import Service, engine_version, make_app
from engine.server.endpoint import Door, open_door, publish, withdraw
from engine.server.logs import bound_output, logger, start_log
from engine.server.metrics import Metrics
from engine.server.runtime_folder import StartError, log_folder, make_runtime_folder
from engine.server.worker import Worker

# From the wish to stop to the end of the process.
STOP_SECONDS = 1.8
# How often the output file is looked at, and the longest sleep of the idle watch.
_HOUSEKEEPING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve.

    Attributes:
        default_model: the model of requests that name none.
        known_models: names for `/v1/models`.
        idle_seconds: stop after so long without a request; 0: never.
        tcp: listen on a loopback port although there are Unix sockets.
    """

    default_model: str
    known_models: Sequence[str] = ()
    idle_seconds: float = 900.0
    tcp: bool = False


class _Server(uvicorn.Server):
    """uvicorn's server without its signal handling, which would end the process too early."""

    @contextlib.contextmanager
    def capture_signals(self):
        yield


def run(make_generator: Callable[[], Generator], options: ServeOptions) -> int:
    """Serve until told to stop or idle for long; the process's exit code.

    `make_generator` is called on the worker thread once the engine listens already, so
    that slow imports do not keep anybody from asking how far it is.
    """
    faulthandler.enable()
    try:
        runtime = make_runtime_folder()
        # Held until the process ends, whatever ends it.
        lock = FileLock(runtime / "engine.lock", mode=0o600)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            print("redraft engine: already running", file=sys.stderr)
            return 0
        try:
            return _run_locked(runtime, make_generator, options)
        finally:
            lock.release()
    except StartError as error:
        print(f"redraft engine: {error}", file=sys.stderr)
    except OSError as error:
        print(f"redraft engine: The engine cannot run: {error}.", file=sys.stderr)
    return 1


def _run_locked(
    runtime: Path, make_generator: Callable[[], Generator], options: ServeOptions
) -> int:
    log = start_log(log_folder(runtime))
    door = open_door(runtime, tcp=options.tcp)
    published = b""
    worker_ended = True

    def leave() -> None:
        withdraw(runtime, published)
        door.close()

    try:
        published = publish(runtime, door, engine_version())
        logger.info("listening, pid %d, version %s", os.getpid(), engine_version())
        worker_ended = asyncio.run(_serve(door, leave, make_generator, options))
    finally:
        leave()
        logger.info("stopped")
        logging.getLogger().removeHandler(log)
        log.close()
    if not worker_ended:
        # The thread is deep in a computation; the interpreter would tear it down unkindly.
        os._exit(0)
    return 0


async def _serve(
    door: Door,
    leave: Callable[[], None],
    make_generator: Callable[[], Generator],
    options: ServeOptions,
) -> bool:
    """Serve at `door`; whether the worker's thread has ended when this returns."""
    loop = asyncio.get_running_loop()
    metrics = Metrics()
    worker = Worker(make_generator, metrics)
    stopping_since = 0.0

    def stop(reason: str) -> None:
        nonlocal stopping_since
        if stopping_since:
            return
        stopping_since = time.monotonic()
        logger.info("stopping: %s", reason)
        worker.stop()
        server.should_exit = True

    service = Service(
        worker=worker,
        metrics=metrics,
        default_model=options.default_model,
        known_models=options.known_models,
        stop=lambda: stop("asked to"),
        token=door.token,
    )
    server = _Server(
        uvicorn.Config(
            make_app(service),
            http="h11",
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=128,
            timeout_graceful_shutdown=1,
        )
    )
    _stop_on_signals(loop, stop)
    worker.start(loop)
    watch = asyncio.create_task(_stop_when_idle(worker, options.idle_seconds, stop))
    try:
        await server.serve(sockets=[door.listener])
    finally:
        watch.cancel()
        stop("the server ended")
        # Before the wait for the worker, so that nobody finds an engine that takes nothing.
        leave()
    left = max(0.1, STOP_SECONDS - (time.monotonic() - stopping_since))
    return await asyncio.to_thread(worker.join, left)


def _stop_on_signals(loop: asyncio.AbstractEventLoop, stop: Callable[[str], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        name = signal.Signals(number).name
        try:
            loop.add_signal_handler(number, stop, name)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda _n, _f, name=name: loop.call_soon_threadsafe(stop, name))


async def _stop_when_idle(worker: Worker, idle_seconds: float, stop: Callable[[str], None]) -> None:
    """Stop after a time without requests; between, keep the output file small."""
    while True:
        bound_output()
        pause = _HOUSEKEEPING_SECONDS
        if idle_seconds > 0:
            left = idle_seconds - worker.state().idle_seconds
            if left <= 0:
                stop("idle")
                return
            pause = min(pause, left)
        await asyncio.sleep(pause)
