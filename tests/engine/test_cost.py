from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cost import CostModel, PassPoint, even, from_json, measure, to_json
from engine.cost_store import cost_of, keep
from engine.eager import EagerRunner
from tests.tiny import make_model


def model_of(table: dict[int, list[float]], windows=(1, 2, 4)) -> CostModel:
    return CostModel(
        PassPoint(w, context, s, 3)
        for context, row in table.items()
        for w, s in zip(windows, row, strict=True)
    )


@pytest.mark.parametrize(
    ("window", "context", "seconds"),
    [
        (1, 0, 1.0),
        (2, 0, 2.0),
        (3, 0, 3.0),  # half way from 2 to 4
        (6, 0, 6.0),  # behind the last: on as before
        (1, 50, 1.5),  # half way between the contexts
        (3, 100, 5.5),
        (1, 200, 3.0),
    ],
)
def test_seconds_are_read_between_and_beyond_the_points(window, context, seconds) -> None:
    cost = model_of({0: [1.0, 2.0, 4.0], 100: [2.0, 4.0, 7.0]})
    assert cost.seconds(window, context) == pytest.approx(seconds)


seconds = st.floats(0.001, 10.0)


def never_falls(values: list[float]) -> bool:
    """More than rounding does, between two points of a straight line."""
    return all(b >= a * (1 - 1e-12) for a, b in itertools.pairwise(values))


@given(st.lists(seconds, min_size=6, max_size=6), st.lists(seconds, max_size=20))
def test_more_rows_or_more_context_never_cost_less(values, passes) -> None:
    cost = model_of({64: values[:3], 512: values[3:]})
    for i, took in enumerate(passes):
        cost.observe(i % 5 + 1, i * 50, took)
    for context in (0, 64, 200, 512, 4000):
        stairs = cost.staircase(context, 9)
        assert len(stairs) == 9
        assert never_falls(stairs)
    for window in (1, 2, 3, 4):
        assert never_falls([cost.seconds(window, c) for c in (0, 64, 100, 512, 513)])


def test_passes_that_run_correct_the_window_that_they_had() -> None:
    cost = model_of({0: [1.0, 2.0, 4.0]})
    for _ in range(200):
        cost.observe(1, 0, 1.0)
        cost.observe(4, 0, 6.0)
    assert cost.seconds(4, 0) == pytest.approx(6.0, rel=0.05)
    assert cost.seconds(1, 0) == pytest.approx(1.0, rel=0.05)
    # One pass that was held up for long moves little.
    before = cost.seconds(1, 0)
    cost.observe(1, 0, 1000.0)
    assert cost.seconds(1, 0) < 1.3 * before


def test_a_machine_that_is_busy_makes_no_window_look_dear_beside_another() -> None:
    cost = model_of({0: [1.0, 2.0, 4.0]})
    for _ in range(50):
        cost.observe(4, 0, 8.0)
    assert cost.seconds(4, 0) == pytest.approx(8.0, rel=0.05)
    assert cost.seconds(4, 0) / cost.seconds(1, 0) == pytest.approx(4.0, rel=0.1)
    # What is kept for the next start knows nothing of it.
    assert cost.points()[0].seconds == 1.0
    assert cost.points()[2].seconds == pytest.approx(4.0, rel=0.1)


def test_measuring_takes_medians_and_keeps_to_its_budget() -> None:
    now = 0.0
    asked: list[tuple[int, int]] = []

    def time_pass(window: int, context: int) -> float:
        nonlocal now
        asked.append((window, context))
        took = 0.01 * window
        now += took
        # The first time everything is cold.
        return took * (10.0 if len(asked) <= 12 else 1.0)

    cost = measure(time_pass, 8, 2.0, lambda: now)
    assert now <= 2.0
    assert {window for window, _ in asked} == {1, 2, 4, 8}
    assert cost.points()[0] == PassPoint(1, 64, 0.01, 4)
    assert cost.seconds(8, 512) == pytest.approx(0.08)


def test_one_round_is_finished_even_where_it_takes_longer_than_the_budget() -> None:
    now = 0.0

    def time_pass(window: int, context: int) -> float:
        nonlocal now
        now += 1.0
        return 1.0

    cost = measure(time_pass, 3, 2.0, lambda: now)
    assert [(p.window, p.samples) for p in cost.points()[:3]] == [(1, 1), (2, 1), (3, 1)]
    assert now == 9.0


def test_a_kept_cost_model_comes_back_and_a_damaged_one_does_not() -> None:
    cost = model_of({0: [1.0, 2.0, 4.0], 100: [2.0, 4.0, 7.0]})
    cost.observe(2, 0, 3.0)
    again = from_json(json.loads(json.dumps(to_json(cost))))
    assert again is not None
    assert [p.seconds for p in again.points()] == pytest.approx([p.seconds for p in cost.points()])
    for damaged in (None, 3, [], [{}], [{"window": 1}], "x", [[1, 2]],
                    [{"window": 1, "context": 0, "seconds": -1.0, "samples": 1}],
                    [{"window": 1, "context": 0, "seconds": float("nan"), "samples": 1}],
                    to_json(cost)[:-1]):  # fmt: skip
        assert from_json(damaged) is None


def test_the_cost_of_a_model_is_measured_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REDRAFT_CACHE_DIR", str(tmp_path))
    runner = EagerRunner(make_model("llama", 300), 512)
    measured = cost_of("m", runner)
    assert {p.context for p in measured.points()} == {64, 512, 2048}
    assert all(p.seconds > 0.0 for p in measured.points())
    monkeypatch.setattr(runner, "probe", None)  # cannot be measured again
    assert cost_of("m", runner).points() == measured.points()
    measured.observe(1, 64, 1.5 * measured.seconds(1, 64))
    keep("m", runner, measured)
    assert cost_of("m", runner).points() == measured.points()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"format": 2}', '{"format": 1, "points": []}', '{"format": 0, "points": []}'],
)
def test_a_damaged_file_is_measured_anew(tmp_path, monkeypatch, text) -> None:
    monkeypatch.setenv("REDRAFT_CACHE_DIR", str(tmp_path))
    runner = EagerRunner(make_model("llama", 300), 512)
    keep("m", runner, even())
    (file,) = tmp_path.rglob("cost/*.json")
    file.write_text(text)
    assert {p.context for p in cost_of("m", runner).points()} == {64, 512, 2048}
    assert json.loads(file.read_text())["format"] == 2


def test_a_probe_leaves_no_trace_and_takes_the_rows_of_the_pass(tiny_target) -> None:
    probe = tiny_target.runner.probe()
    assert probe(4, 64) > 0.0
    assert probe(4, 512) > 0.0
    caches = probe._caches
    assert {context: cache.length for context, cache in caches.items()} == {64: 64, 512: 512}
    for cache in caches.values():
        cache.check_integrity()
