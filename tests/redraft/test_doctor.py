"""`redraft doctor`, with tiny models; how fast anything is, is never tested."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from engine import health_check
from engine.cost import CONTEXTS, PassPoint
from engine.health_check import Report, advice, best_window, copy_rate
from engine.health_memory import DeviceMemory, device_memory, memory_advice
from redraft.cli import main
from redraft.commands.doctor_plot import CannotDraw, draw
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
        max_context=32768, resident_bytes=2 * 10**9, memory=DeviceMemory(8 * 10**9, 16 * 10**9),
        copy_rate=2e10, load=0.0,
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
        "memory: weights 0.00 GB, keys and values 0.5 MB for 1,000 tokens",
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
    assert found["max_context"] == 4096
    assert set(found["memory"]) == {"free", "total"}
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


@pytest.mark.parametrize(
    ("free", "words"),
    [
        # 1,000 bytes a token: a window of 32,000 takes 32 MB, kept prompts 268 MB.
        (10**10, ""),
        (10**9, "Memory is tight: 1.00 GB"),
        (20 * 10**6, "enough for 20,000 tokens of context; the model's whole window of 32,000"),
        (3 * 10**6, "Only 0.00 GB of memory are left beside the model, enough for 3,000 tokens"),
    ],
)
def test_advice_says_how_much_context_the_memory_holds(free, words) -> None:
    said = memory_advice(DeviceMemory(free, 2 * 10**10), 1000, 32000, "cpu")
    assert len(said) == bool(words)
    assert words in " ".join(said)


def test_nothing_is_said_of_memory_that_cannot_be_told() -> None:
    assert memory_advice(DeviceMemory(), 1000, 32000, "mps") == []
    assert device_memory("mps") == DeviceMemory()


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("max", DeviceMemory(6000 * 1024, 8000 * 1024)),
        ("4096000", DeviceMemory(3096000, 4096000)),
        ("819200000", DeviceMemory(6000 * 1024, 8000 * 1024)),
    ],
)
def test_memory_is_the_containers_where_that_is_less(tmp_path, limit, expected) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 8000 kB\nMemAvailable: 6000 kB\n")
    group = tmp_path / "sys" / "fs" / "cgroup"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(limit + "\n")
    (group / "memory.current").write_text("1000000\n")
    assert device_memory("cpu", tmp_path) == expected


def test_a_machine_that_tells_nothing_of_its_memory_is_no_failure(tmp_path) -> None:
    assert device_memory("cpu", tmp_path) == DeviceMemory()


@pytest.mark.parametrize(("name", "begins"), [("a.png", b"\x89PNG"), ("a.SVG", b"<?xml")])
def test_the_staircase_is_drawn_in_the_form_that_the_name_asks_for(
    tiny, tmp_path, capsys, name, begins
) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / name
    options = ["--model", tiny, "--dtype", "float32", "--seconds", "0.2", "--plot", str(file)]
    assert main(["doctor", *options]) == 0
    assert file.read_bytes().startswith(begins)
    assert "plain decoding: " in capsys.readouterr().out


def test_without_matplotlib_a_sentence_says_what_to_install(capsys, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["doctor", "--plot", "a.png"]) == 2
    assert capsys.readouterr().err == (
        "redraft: A picture needs matplotlib; run pip install 'redraft[plot]'.\n"
    )


@pytest.mark.parametrize("name", ["a.jpg", "a", "png"])
def test_a_picture_of_another_kind_is_refused_before_anything_is_measured(capsys, name) -> None:
    assert main(["doctor", "--plot", name, "--json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert found["code"] == "usage"
    assert found["message"] == f"{name} must end in .png or .svg."


def test_a_picture_that_cannot_be_written_is_told(tmp_path, capsys) -> None:
    pytest.importorskip("matplotlib")
    assert main(["doctor", "--plot", str(tmp_path / "gone" / "a.png")]) == 4
    assert "its folder is missing" in capsys.readouterr().err
    (tmp_path / "a.png").mkdir()
    with pytest.raises(CannotDraw, match="cannot be written"):
        draw(report_of({1: 1.0, 2: 1.5}), tmp_path / "a.png")


def test_advice_is_silent_where_nothing_is_wrong() -> None:
    assert len(advice(report_of({1: 1.0, 16: 2.8}))) == 1


def test_a_copy_has_a_rate() -> None:
    assert copy_rate("cpu", 1 << 16) > 0.0
