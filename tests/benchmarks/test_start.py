"""The start of an engine is measured in real processes, with a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from benchmarks import start
from benchmarks.common import Memory, cpu_seconds_of, memory_of
from benchmarks.start import READ
from tests.tiny import save_tiny_model


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("REDRAFT_CACHE_DIR", str(tmp_path / "cache"))
    return str(save_tiny_model(tmp_path / "tiny"))


def test_a_start_is_told_beside_its_aims_and_what_it_cannot_do_without(
    tiny, capsys, monkeypatch
) -> None:
    monkeypatch.setattr(start, "BASELINES", {"import json": "import json", "read weights": READ})
    options = ["--model", tiny, "--dtype", "float32", "--runs", "1", "--json"]
    assert start.main(options) == 0
    out, err = capsys.readouterr()
    assert "second start to first pass, 1 runs: " in err
    assert "aim: under 5 s: " in err
    found = json.loads(out)
    (seconds,) = found["start_seconds"]["values"]
    assert 0.0 < found["listening_seconds"]["median"] < seconds
    assert found["import json seconds"]["median"] > 0.0
    assert "read weights seconds" in found
    assert found["weight_bytes"] > 0


def test_an_engine_that_does_not_start_is_no_figure(monkeypatch) -> None:
    monkeypatch.setattr(start, "LONGEST_START", 20.0)
    with pytest.raises(RuntimeError, match=r"did not start \(exit code 2\)"):
        start.start(["--no-such-option"])


def test_the_weights_are_looked_for_where_a_start_reads_them(tmp_path) -> None:
    for name in ("b.safetensors", "a.safetensors", "config.json"):
        (tmp_path / name).touch()
    found = start.weight_files(tmp_path, "float32")
    assert [file.name for file in found] == ["a.safetensors", "b.safetensors"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_memory_and_time_are_the_processs_own_and_nothing_where_there_is_none() -> None:
    resident, peak = memory_of()
    assert 0 < resident <= peak
    done = subprocess.Popen(["true"])
    done.wait()
    assert memory_of(done.pid) == Memory()
    assert cpu_seconds_of(done.pid) == 0.0
    assert cpu_seconds_of() == pytest.approx(time.process_time(), abs=0.1)
