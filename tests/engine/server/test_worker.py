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
    Tick,
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


class Stepping:
    """Answers that take as many turns as their message says, and tell of every turn."""

    loaded_model = "m"

    def __init__(self) -> None:
        self.turns: list[str] = []
        self.closed: list[str] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def fits_beside(self, request, others) -> bool:
        return request.model == "m" and all(other.model == "m" for other in others)

    def generate(self, request, is_cancelled):
        name, count = request.messages[0].content.split()
        self.begun.set()
        self.go_on.wait(10)
        try:
            for _ in range(int(count)):
                self.turns.append(name)
                yield TextDelta(name)
            yield END
        finally:
            self.closed.append(name)


def asked(name: str, turns: int, model: str = "m") -> GenerationRequest:
    return GenerationRequest(model, (Message("user", f"{name} {turns}"),))


async def held(start) -> tuple[Worker, Stepping, Job]:
    """A worker whose first answer, of 3 turns, waits in its first one."""
    generator = Stepping()
    worker = start(lambda: generator)
    first = worker.submit(asked("a", 3))
    await asyncio.to_thread(generator.begun.wait, 10)
    return worker, generator, first


async def test_answers_by_one_model_take_turns(start) -> None:
    worker, generator, first = await held(start)
    second = worker.submit(asked("b", 1))
    third = worker.submit(asked("c", 2))
    generator.go_on.set()
    for job in (first, second, third):
        assert (await all_of(job))[-1] == END
    assert "".join(generator.turns) == "aabcac"
    assert sorted(generator.closed) == ["a", "b", "c"]


async def test_at_most_four_are_answered_at_once(start) -> None:
    worker, generator, first = await held(start)
    jobs = [first, *(worker.submit(asked(name, 3)) for name in "bcdef")]
    generator.go_on.set()
    for job in jobs:
        assert (await all_of(job))[-1] == END
    turns = "".join(generator.turns)
    assert turns[:9] == "aabcdabcd"
    assert set(turns[-4:]) == {"e", "f"}


async def test_another_model_waits_and_is_not_overtaken(start) -> None:
    worker, generator, first = await held(start)
    other = worker.submit(asked("x", 2, model="other"))
    later = worker.submit(asked("b", 1))
    generator.go_on.set()
    for job in (first, other, later):
        assert (await all_of(job))[-1] == END
    assert "".join(generator.turns) == "aaaxxb"


async def test_a_cancel_is_seen_at_the_next_turn_and_the_others_go_on(start) -> None:
    worker, generator, first = await held(start)
    second = worker.submit(asked("b", 3))
    worker.cancel(first)
    generator.go_on.set()
    assert (await all_of(second))[-1] == END
    # The turn that ran when the cancel came was the first answer's last.
    assert "".join(generator.turns) == "abbb"
    assert generator.closed == ["a", "b"]


class Reading:
    """A prefill of a thousand steps, each of which waits to be let go."""

    loaded_model = "m"
    kept = (3, 4096)

    def __init__(self) -> None:
        self.steps = 0
        self.allowed = threading.Semaphore(0)
        self.waits = threading.Event()
        self.ended = threading.Event()

    def generate(self, request, is_cancelled):
        try:
            for step in range(1000):
                self.waits.set()
                self.allowed.acquire()
                self.steps += 1
                # It forgets to ask whether it is cancelled.
                yield Progress("prefill", step / 1000) if step % 3 else Tick()
            yield END
        finally:
            self.ended.set()


@pytest.mark.parametrize("before", [0, 1, 2, 30])
async def test_a_cancel_during_prefill_is_answered_after_the_step_that_runs(start, before) -> None:
    reading = Reading()
    worker = start(lambda: reading)
    job = worker.submit(REQUEST)
    for _ in range(before):
        assert await asyncio.to_thread(reading.waits.wait, 10)
        reading.waits.clear()
        reading.allowed.release()
    assert await asyncio.to_thread(reading.waits.wait, 10)
    worker.cancel(job)
    for _ in range(5):
        reading.allowed.release()
    assert await asyncio.to_thread(reading.ended.wait, 10)
    assert reading.steps == before + 1


async def test_ticks_are_not_sent_and_what_is_kept_is_told(start) -> None:
    reading = Reading()
    worker = start(lambda: reading)
    job = worker.submit(REQUEST)
    for _ in range(1000):
        reading.allowed.release()
    items = []
    while not items or items[-1] != END:
        items += await asyncio.wait_for(job.take(), 10)
    assert not [item for item in items if isinstance(item, Tick)]
    state = worker.state()
    assert (state.kept_sequences, state.kept_bytes) == (3, 4096)


async def test_a_failure_ends_one_answer_only(start) -> None:
    worker, generator, first = await held(start)
    broken = worker.submit(asked("b", "x"))  # type: ignore[arg-type]
    generator.go_on.set()
    assert (await all_of(broken))[-1].code == "internal"
    assert (await all_of(first))[-1] == END
    assert "".join(generator.turns) == "aaa"


async def test_stopping_ends_all_that_are_answered(start) -> None:
    worker, generator, first = await held(start)
    second = worker.submit(asked("b", 3))
    worker.stop()
    generator.go_on.set()
    for job in (first, second):
        assert (await all_of(job))[-1].code == "engine_stopping"
    assert await asyncio.to_thread(worker.join, 10)
