"""The CUDA-graph runner as the engine and the doctor use it; on the CPU without capture."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.cuda.runner import CudaGraphRunner
from engine.generation import generate
from engine.health_check import examine
from engine.loader import LoadedModel
from engine.plain import PlainRunner
from engine.prefix import PrefixCache
from tests.engine.test_cuda import runner_of
from tests.engine.test_turns import alone, in_turns, rewrite, stats_of, text_of
from tests.tiny import make_model


@pytest.fixture
def target(tiny_qwen2) -> LoadedModel:
    """A model with a tokenizer, on this runner."""
    model = make_model("qwen2", tiny_qwen2.tokenizer.get_vocab_size())
    return replace(tiny_qwen2, runner=CudaGraphRunner(model, 4000))


def test_a_warm_prefix_changes_no_answer(target) -> None:
    prefix = PrefixCache(target.runner)
    request = rewrite("Rename width.")
    cold, warm = (list(generate(target, None, prefix, request, lambda: False)) for _ in range(2))
    assert text_of(warm) == text_of(cold) == alone(target, request)
    assert stats_of(cold).cached_prompt_tokens == 0
    assert stats_of(warm).cached_prompt_tokens >= 256
    assert (stats_of(warm).runner, stats_of(warm).exact) == ("cuda-graphs", True)


def test_answers_in_turns_are_those_of_each_alone(target) -> None:
    requests = [rewrite("Rename width."), rewrite("Rename height."), rewrite("Add types.")]
    prefix = PrefixCache(target.runner)
    heard = in_turns(*(generate(target, None, prefix, r, lambda: False) for r in requests))
    assert [text_of(events) for events in heard] == [alone(target, r) for r in requests]


@pytest.mark.parametrize("plain", [False, True])
def test_the_doctor_examines_a_runner_whose_cache_has_no_layers(plain) -> None:
    runner = PlainRunner(make_model("llama", 300), 2000) if plain else runner_of()
    model = LoadedModel("tiny", runner, None, None, frozenset())  # type: ignore[arg-type]
    report = examine(model, 0.0, budget_seconds=0.0, copied_bytes=1 << 20)
    assert report.runner == ("plain" if plain else "cuda-graphs")
    # Keys and values of 2 layers, 2 heads of 16 numbers of 4 bytes; a plain state is the model's.
    assert report.kv_bytes_a_token == (0 if plain else 2 * 2 * 2 * 16 * 4)
