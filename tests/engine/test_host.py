from __future__ import annotations

import gc
import random
import weakref
from dataclasses import replace

import pytest

from engine.core import (
    Cancelled,
    EngineError,
    Finished,
    GenerationRequest,
    Message,
    Progress,
    TextDelta,
)
from engine.host import ModelHost
from tests.tiny import save_tiny_model


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> list[str]:
    """Three tiny models with the same tokenizer."""
    return [
        str(save_tiny_model(tmp_path_factory.mktemp(f"model{seed}"), seed=seed))
        for seed in range(3)
    ]


@pytest.fixture
def host(folders):
    host = ModelHost("cpu", "float32", folders[0])
    yield host
    host.close()


REQUEST = GenerationRequest(model="", messages=(Message("user", "add"),), max_tokens=4)


def run(host, request=REQUEST, is_cancelled=lambda: False):
    events = list(host.generate(request, is_cancelled))
    assert isinstance(events[-1], Finished)
    return events[-1].stats, [e.phase for e in events if isinstance(e, Progress)]


def test_a_request_without_a_model_loads_the_default_once(host, folders) -> None:
    assert host.loaded_model is None
    stats, phases = run(host)
    assert stats.model == host.loaded_model == folders[0]
    assert "loading" in phases
    _, phases = run(host, replace(REQUEST, model="default"))
    assert "loading" not in phases


def test_another_target_takes_the_place_of_the_first_and_of_its_draft_model(host, folders) -> None:
    run(host, replace(REQUEST, draft_model=folders[1]))
    held = [weakref.ref(host._target.runner._model), weakref.ref(host._draft[1].runner._model)]
    stats, _ = run(host, replace(REQUEST, model=folders[2]))
    assert stats.model == host.loaded_model == folders[2]
    gc.collect()
    assert [model() for model in held] == [None, None]


def test_a_model_that_does_not_exist_leaves_the_loaded_one_where_it_is(host, folders) -> None:
    run(host)
    for change in ({"model": "no-such-model"}, {"draft_model": "no-such-model"}):
        with pytest.raises(EngineError) as caught:
            run(host, replace(REQUEST, **change))
        assert caught.value.code == "model_not_found"
        assert host.loaded_model == folders[0]
    _, phases = run(host)
    assert "loading" not in phases


def test_a_load_that_fails_costs_only_its_request(host, folders, tmp_path) -> None:
    run(host)
    broken = save_tiny_model(tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(EngineError) as caught:
        run(host, replace(REQUEST, model=str(broken)))
    assert caught.value.code == "unsupported_model"
    assert host.loaded_model is None
    assert run(host)[0].model == folders[0]


def test_a_cancelled_load_leaves_nothing_half_done(host, folders) -> None:
    events = host.generate(REQUEST, lambda: False)
    assert next(event for event in events if isinstance(event, Progress)).phase == "loading"
    events.close()
    assert host.loaded_model is None
    with pytest.raises(Cancelled):
        run(host, is_cancelled=lambda: True)
    assert run(host)[0].model == folders[0]


SOURCE = "def area(self):\n    width = self.right - self.left\n    return width * self.height\n"


def asked(number: int, **more) -> GenerationRequest:
    """A rewrite whose answer is drafted from the source; some share their beginning."""
    text = f"{SOURCE}\n\n{'Rename width. ' * (number % 3)}Be brief."
    message = Message("user", text)
    return GenerationRequest("", (message,), source=SOURCE, max_tokens=40, **more)


def text_of(events) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("dtype", ["float32", None])
def test_answers_in_turns_are_those_that_each_would_have_alone(folders, dtype) -> None:
    choice = random.Random(7)
    requests = [asked(i, temperature=0.8 * (i % 2), seed=i) for i in range(4)]
    alone = []
    for request in requests:
        host = ModelHost("cpu", dtype, folders[0])
        alone.append(text_of(host.generate(replace(request, draft=False), lambda: False)))
        host.close()
    host = ModelHost("cpu", dtype, folders[0])
    run(host)
    for _ in range(6):
        running = {i: host.generate(r, lambda: False) for i, r in enumerate(requests)}
        heard: dict[int, list] = {i: [] for i in running}
        dropped = choice.randrange(8)  # from 4 on, nobody is
        while running:
            i = choice.choice(sorted(running))
            if i == dropped and len(heard[i]) > 2:
                running.pop(i).close()
                continue
            heard[i].append(next(running[i]))
            if isinstance(heard[i][-1], Finished):
                running.pop(i)
        for i, events in heard.items():
            if i != dropped:
                assert text_of(events) == alone[i]
    host.close()


def test_only_requests_for_what_is_loaded_fit_together(host, folders) -> None:
    assert not host.fits_beside(REQUEST, [REQUEST])  # nothing is loaded yet
    run(host)
    other = replace(REQUEST, messages=(Message("user", "subtract"),))
    drafted = replace(REQUEST, draft_model=folders[1])
    assert host.fits_beside(REQUEST, [replace(other, model=folders[0])])
    assert not host.fits_beside(replace(REQUEST, model=folders[1]), [other])
    assert not host.fits_beside(REQUEST, [replace(other, model=folders[1])])
    assert not host.fits_beside(drafted, [other])
    assert not host.fits_beside(REQUEST, [drafted])
    assert host.fits_beside(replace(drafted, draft=False), [other])
    run(host, drafted)
    assert host.fits_beside(drafted, [drafted, other])
    assert host.fits_beside(REQUEST, [drafted])
    assert not host.fits_beside(replace(REQUEST, draft_model=folders[2]), [drafted])


def test_it_tells_what_the_prefix_cache_keeps(host) -> None:
    assert host.kept == (0, 0)
    run(host)
    assert host.kept == (0, 0)  # short of a chunk, so nothing of it can be reused
    run(host, asked(2))
    sequences, held = host.kept
    assert sequences == 1
    assert held == host._prefix.bytes > 0
    host.close()
    assert host.kept == (0, 0)


@pytest.mark.parametrize(("budget", "part"), [(None, 64 << 20), (8 << 20, 2 << 20), (0, 0)])
def test_a_draft_model_keeps_a_quarter_of_what_the_target_may(folders, budget, part) -> None:
    host = ModelHost("cpu", "float32", folders[0], budget)
    run(host, replace(REQUEST, draft_model=folders[1]))
    assert host._draft[1].prefix._budget == part
    host.close()
