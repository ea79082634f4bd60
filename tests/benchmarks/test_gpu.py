"""The GPU benchmark, on the CPU with a tiny model: that it measures, not what."""

from __future__ import annotations

import json

import pytest
import torch

from benchmarks.device import gpu
from engine.cuda.runner import LADDER, SHORTEST_CONTEXT, CudaGraphRunner

SMALL = ["--shape", "tiny", "--windows", "20"]


@pytest.fixture(autouse=True)
def one_round(monkeypatch) -> None:
    monkeypatch.setattr(gpu, "ROUNDS", 1)


def test_everything_is_measured_and_no_token_changes(capsys) -> None:
    assert gpu.main([*SMALL, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["wrong"] == 0
    assert found["windows"] >= 20
    assert [rows for rows, context, _ in found["passes"] if context == 512] == list(LADDER)
    assert [(rows, context) for rows, context, _ in found["exact_passes"]] == [(1, 512)]
    assert list(found["forced"]) == [str(length) for length in gpu.FORCED]
    assert all(rate > 0 for rates in found["forced"].values() for rate in rates)


def test_what_was_found_is_told_in_words(capsys) -> None:
    assert gpu.main(SMALL) == 0
    out = capsys.readouterr().out
    for words in ("windows of an adversary, 0 answers changed", "GB/s", "of 1 row", "of a copy"):
        assert words in out


def test_a_draft_that_changes_a_token_is_seen(capsys, monkeypatch) -> None:
    verify = CudaGraphRunner.verify_greedy

    def misled(runner, cache, tokens):
        verdict = verify(runner, cache, tokens)
        if len(tokens) < 4:
            return verdict
        return verdict._replace(tokens=[*verdict.tokens[:-1], 7])

    monkeypatch.setattr(CudaGraphRunner, "verify_greedy", misled)
    assert gpu.main(SMALL) == 1
    assert " 0 answers changed" not in capsys.readouterr().out


def test_the_adversary_goes_over_the_end_of_a_rung() -> None:
    runner = gpu.make_runner("tiny", None, torch.device("cpu"))
    _, wrong = gpu.attack(runner, 20)
    assert wrong == 0
    assert {slots for _, slots, _ in runner._passes} == {SHORTEST_CONTEXT, 2 * SHORTEST_CONTEXT}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys) -> None:
    assert gpu.main([]) == 2
    assert "There is no CUDA GPU here" in capsys.readouterr().err
