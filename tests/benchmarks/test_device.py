"""The comparisons run and print with a tiny model; how fast anything is, is never tested."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import pytest

from benchmarks.device import __main__ as device
from benchmarks.device import llama_peer, passes
from benchmarks.device.transformers_peer import Generate
from engine.int8.linear import is_supported
from tests.tiny import save_tiny_model

RATES = [(32, 0, 0, 50.0), (0, 16, 0, 20.0), (32, 0, 512, 40.0), (0, 16, 512, 18.0)]
TESTS = [
    {"n_prompt": p, "n_gen": n, "n_depth": d, "avg_ts": rate,
     "build_number": 7, "build_commit": "abc", "model_type": "qwen2 1.5B"}
    for p, n, d, rate in RATES
]  # fmt: skip


@pytest.fixture
def llama_bench(tmp_path) -> Path:
    """A program that answers as llama-bench does, and keeps what it was asked."""
    program = tmp_path / "llama-bench"
    asked = tmp_path / "asked"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nopen({str(asked)!r}, 'a').write(' '.join(sys.argv[1:]))\n"
        f"print({json.dumps(TESTS)!r})\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


@pytest.mark.parametrize(
    ("dtype", "aims"),
    [
        # Memory, decoding, and both ratios over both contexts.
        ("float32", 6),
        # And a prompt read as llama.cpp's test reads it.
        pytest.param(
            "int8", 8, marks=pytest.mark.skipif(not is_supported(), reason="no int8 runner here")
        ),
    ],
)
def test_every_comparison_is_printed_with_its_aim(
    tmp_path, capsys, monkeypatch, llama_bench, dtype: str, aims: int
) -> None:
    for module in (device, passes):
        monkeypatch.setattr(module, "WINDOWS", (1, 16, 32))
    monkeypatch.setattr(device, "path", lambda model: Path("m.gguf"))
    folder = str(save_tiny_model(tmp_path / "tiny"))
    options = ["--model", folder, "--rounds", "2", "--tokens", "4", "--dtype", dtype]
    device.main([*options, "--llama-bench", str(llama_bench), "--json"])
    out, err = capsys.readouterr()
    for words in (
        "resident memory: ",
        " 16 rows over 512 tokens: ",
        "16 rows / 1 row over 0 tokens: ",
        "plain decoding after 128 tokens: ",
        "llama.cpp 7 (abc), qwen2 1.5B",
        "llama.cpp's prompt 50.00 (50.00 to 50.00)",
        "llama.cpp token by token 18.00",
    ):
        assert words in err
    assert err.count("; aim: ") == aims
    found = json.loads(out)
    assert found["llama_prompt_rate_over_512"] == {"median": 40.0, "values": [40.0, 40.0]}
    assert len(found["plain_rate"]["values"]) == len(found["transformers_rate"]["values"]) == 2
    ours = [32 / seconds for seconds in found["pass_seconds_32_over_512"]["values"]]
    assert ("prompt_32_over_llama_over_512" in found) == (dtype == "int8")
    assert found["rows_32_over_llama_over_512"] == pytest.approx(sum(ours) / 2 / 40.0)


def test_llama_cpp_is_asked_for_the_same_rows_contexts_and_threads(tmp_path, llama_bench) -> None:
    rates = llama_peer.run(llama_bench, Path("m.gguf"), (0, 512), 2)
    assert rates.prompt == {0: 50.0, 512: 40.0}
    assert rates.single == {0: 20.0, 512: 18.0}
    asked = (tmp_path / "asked").read_text()
    for words in ("-m m.gguf ", "-p 32 ", "-d 0,512 ", "-t 2 "):
        assert words in asked


def test_a_llama_bench_that_fails_is_told_with_its_words(tmp_path) -> None:
    program = tmp_path / "llama-bench"
    program.write_text("#!/bin/sh\necho no such model >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match="no such model"):
        llama_peer.run(program, Path("m.gguf"), (0,), 2)


def test_what_was_built_is_used_again_and_without_cmake_a_sentence_says_so(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("REDRAFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(llama_peer.shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="cmake"):
        llama_peer.built(print)
    name = f"{llama_peer.PACKAGE}-{llama_peer.VERSION}"
    program = tmp_path / "peers" / name / "build" / "bin" / "llama-bench"
    program.parent.mkdir(parents=True)
    program.touch()
    assert llama_peer.built(print) == program


def test_a_peer_that_cannot_load_ends_the_run(tmp_path) -> None:
    with Generate(tmp_path / "gone", 4, 2) as peer, pytest.raises(RuntimeError, match="has ended"):
        peer.wait_until_loaded()
