"""`redraft doctor`, with tiny models; how fast anything is, is never tested."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from engine import health_check
from engine.cost import CONTEXTS, PassPoint
from engine.health_check import Report, advice, best_window, copy_rate
from redraft.cli import main
from tests.tiny import save_tiny_model


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("REDRAFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("REDRAFT_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(health_check.examine, "__defaults__", (20.0, 1 << 20))
    return str(save_tiny_model(tmp_path / "tiny"))


def report_of(seconds: dict[int, float], **more) -> Report:
    points = tuple(PassPoint(w, CONTEXTS[0], s, 3) for w, s in seconds.items())
    usual = Report(
        model="m", runner="cpu-int8", device="cpu", dtype="int8", exact=True, notice="",
        threads=2, cores=2, points=points, weight_bytes=10**9, kv_bytes_a_token=1024,
        resident_bytes=2 * 10**9, copy_rate=2e10, load=0.0,
    )  # fmt: skip
    return replace(usual, **more)


def test_the_report_names_all_that_was_measured(tiny, capsys) -> None:
    assert main(["doctor", "--model", tiny, "--dtype", "float32", "--seconds", "0.2"]) == 0
    out, err = capsys.readouterr()
    for words in (
        "eager on cpu in float32, exact",
        "ms over 512",
        "tokens/s",
        "GB/s",
        "KiB a token",
    ):
        assert words in out
    assert "does not run in int8 here" in out
    assert "measuring for about 0.2 seconds ..." in err


def test_the_same_comes_as_json(tiny, capsys) -> None:
    assert main(["doctor", "--model", tiny, "--seconds", "0.2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {point["context"] for point in found["points"]} == set(CONTEXTS)
    assert found["points"][0]["window"] == 1
    assert found["plain_rate"] > 0.0
    # Two layers of two heads of 16 numbers, keys and values, in float32.
    assert found["kv_bytes_a_token"] == 2 * 2 * 16 * 2 * 4
    assert all(isinstance(sentence, str) for sentence in found["advice"])


def test_a_model_that_does_not_exist_is_told_in_a_sentence(tiny, capsys) -> None:
    assert main(["doctor", "--model", tiny + "-gone"]) == 5
    assert capsys.readouterr().err.startswith("redraft: ")
    assert main(["doctor", "--model", tiny + "-gone", "--json"]) == 5
    assert json.loads(capsys.readouterr().out)["code"] == "model_not_found"


@pytest.mark.parametrize("as_json", [True, False])
def test_an_interruption_is_told_in_the_form_that_was_asked_for(
    tiny, capsys, monkeypatch, as_json
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(health_check, "examine", interrupted)
    assert main(["doctor", "--model", tiny, *(["--json"] if as_json else [])]) == 130
    out, err = capsys.readouterr()
    if as_json:
        assert (found := json.loads(out))["status"] == "cancelled"
        assert found["code"] == "interrupted"
    else:
        assert err.endswith("redraft: Interrupted.\n")


def test_a_time_that_is_no_time_is_refused(capsys) -> None:
    assert main(["doctor", "--seconds", "0"]) == 2


@pytest.mark.parametrize(
    ("seconds", "window", "gain"),
    [
        ({1: 1.0, 2: 1.0, 4: 1.1, 8: 1.6, 16: 2.8}, 16, 16 / 2.8),
        ({1: 1.0, 2: 2.0, 4: 4.0}, 1, 1.0),
        ({1: 1.0, 2: 1.0, 4: 8.0}, 2, 2.0),
    ],
)
def test_the_best_window_has_the_most_rows_a_second(seconds, window, gain) -> None:
    assert best_window(seconds) == (window, pytest.approx(gain))


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (report_of({1: 1.0, 16: 2.8}), "up to 5.7 times"),
        (report_of({1: 1.0, 2: 2.0}), "drafts cannot help"),
        (report_of({1: 1.0, 16: 5.0}), "Rows are dear"),
        (report_of({1: 1.0, 2: 1.0}, load=1.5), "Other work was using about 1.5 of 2 cores"),
        (report_of({1: 1.0, 2: 1.0}, dtype="float32"), "does not run in int8"),
        (report_of({1: 1.0, 2: 1.0}, exact=False), "may change a token"),
        (report_of({1: 1.0, 2: 1.0}, notice="Served plainly."), "Served plainly."),
    ],
)
def test_advice_says_what_the_figures_mean(report, words) -> None:
    assert words in " ".join(advice(report))


def test_advice_is_silent_where_nothing_is_wrong() -> None:
    assert len(advice(report_of({1: 1.0, 16: 2.8}))) == 1


def test_a_copy_has_a_rate() -> None:
    assert copy_rate("cpu", 1 << 16) > 0.0
