"""The worker's thread by itself, where a process would hide what happens."""

from __future__ import annotations

import asyncio
import threading

import pytest

from engine.core import (
    EngineError,
    Finished,
    GenerationRequest,
    GenerationStats,
    Message,
    Progress,
    TextDelta,
)
from engine.server.job import Job
from engine.server.metrics import Metrics
from engine.server.worker import Worker

REQUEST = GenerationRequest("m", (Message("user", "x"),))
END = Finished("stop", GenerationStats())


class Echo:
    loaded_model = "m"

    def __init__(self) -> None:
        self.closed = threading.Event()

    def generate(self, request, is_cancelled):
        yield TextDelta(request.messages[-1].content)
        yield END

    def close(self) -> None:
        self.closed.set()


async def all_of(job: Job) -> list:
    items: list = []
    while not items or isinstance(items[-1], Progress | TextDelta):
        items += await asyncio.wait_for(job.take(), 10)
    return items


@pytest.fixture
async def start():
    workers = []

    def start(factory) -> Worker:
        worker = Worker(factory, Metrics())
        worker.start(asyncio.get_running_loop())
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.stop()
        assert await asyncio.to_thread(worker.join, 10)


async def test_a_request_that_comes_before_the_generator_is_built_says_so_and_waits(start):
    built = threading.Event()

    def slow() -> Echo:
        assert built.wait(10)
        return Echo()

    worker = start(slow)
    job = worker.submit(REQUEST)
    assert await asyncio.wait_for(job.take(), 10) == [Progress("loading", None, "starting")]
    assert worker.state().model is None
    built.set()
    assert await all_of(job) == [TextDelta("x"), END]
    assert worker.state().model == "m"


async def test_a_generator_that_cannot_be_built_fails_the_request_and_is_tried_again(start):
    tries = []

    def factory() -> Echo:
        tries.append(1)
        if len(tries) < 3:
            raise EngineError("unsupported_model", "Not this one.")
        return Echo()

    worker = start(factory)
    failed = (await all_of(worker.submit(REQUEST)))[-1]
    assert (failed.code, failed.message) == ("unsupported_model", "Not this one.")
    assert (await all_of(worker.submit(REQUEST)))[-2:] == [TextDelta("x"), END]
    assert len(tries) == 3


async def test_after_stop_nothing_is_taken_and_the_generator_is_closed(start):
    echo = Echo()
    worker = start(lambda: echo)
    assert (await all_of(worker.submit(REQUEST)))[-1] == END
    worker.stop()
    with pytest.raises(EngineError) as caught:
        worker.submit(REQUEST)
    assert caught.value.code == "engine_stopping"
    assert await asyncio.to_thread(echo.closed.wait, 10)
    assert worker.state().stopping


async def test_of_several_reports_of_progress_only_the_newest_waits():
    job = Job(REQUEST)
    for percent in range(100):
        job.put(Progress("prefill", percent / 100))
    job.put(TextDelta("a"))
    job.put(Progress("prefill", 1.0))
    job.put(END)
    job.put(TextDelta("too late"))
    assert await job.take() == [
        Progress("prefill", 0.99),
        TextDelta("a"),
        Progress("prefill", 1.0),
        END,
    ]


async def test_an_answer_that_ended_cannot_be_abandoned():
    job = Job(REQUEST)
    job.put(END)
    assert not job.abandon(EngineError("engine_stopping", "."))
    assert not job.cancelled.is_set()
    assert await job.take() == [END]
