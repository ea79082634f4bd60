"""What every runner promises: exact passes, and prefill that can be stopped anywhere."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Gemma2Config, LlamaConfig, MistralConfig, Qwen2Config

from engine.eager import EagerRunner
from engine.layers import chunks, has_common_shape
from engine.loader import load_model
from tests.tiny import make_model, save_tiny_model


def ids_of(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(3, 280), k=count)


def logits_by_windows(runner, prompt, tokens, windows) -> torch.Tensor:
    """Logits of `tokens` behind `prompt`, verified in passes of the given sizes."""
    cache = runner.new_cache(16)
    for _ in runner.prefill(cache, prompt):
        pass
    rows, done = [], 0
    for window in windows:
        part = tokens[done : done + window]
        if part:
            rows.append(runner.verify(cache, part))
            cache.check_integrity()
        done += window
    return torch.cat(rows)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_rows_logits_do_not_depend_on_the_pass_that_it_stands_in(tiny_target, threads) -> None:
    runner = tiny_target.runner
    assert runner.exact
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        prompt, tokens = ids_of(70, 1), ids_of(60, 2)
        alone = logits_by_windows(runner, prompt, tokens, [1] * 60)
        choice = random.Random(3)
        longest = runner.max_draft + 1
        for _ in range(6):
            windows = [choice.randint(1, longest) for _ in range(60)]
            assert torch.equal(logits_by_windows(runner, prompt, tokens, windows), alone)
    finally:
        torch.set_num_threads(before)


def test_rows_after_a_rollback_are_those_of_a_fresh_sequence(tiny_target) -> None:
    runner = tiny_target.runner
    prompt, tokens = ids_of(70, 1), ids_of(24, 2)
    alone = logits_by_windows(runner, prompt, tokens, [1] * 24)
    cache = runner.new_cache(16)
    for _ in runner.prefill(cache, prompt):
        pass
    choice = random.Random(4)
    for row in range(24):
        wrong = choice.choices(range(3, 280), k=choice.randint(0, runner.max_draft))
        logits = runner.verify(cache, [tokens[row], *wrong])
        assert torch.equal(logits[0], alone[row])
        cache.rollback(len(wrong))


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_prefill_may_be_stopped_anywhere(tiny_qwen2_int8, data) -> None:
    runner = tiny_qwen2_int8.runner
    tokens = ids_of(150, 5)
    whole = runner.new_cache(150)
    steps = list(runner.prefill(whole, tokens))
    assert steps == sorted(steps)
    assert steps[-1] == 150
    stop = data.draw(st.integers(0, len(steps)))
    cache = runner.new_cache(16)
    running = runner.prefill(cache, tokens)
    for _ in range(stop):
        next(running)
    running.close()
    cache.check_integrity()
    done = steps[stop - 1] if stop else 0
    assert cache.tokens == tokens[: 150 if done == 150 else int(done) // 64 * 64]
    for _ in runner.prefill(cache, tokens[cache.length :]):
        pass
    for ours, theirs in zip(cache.layers, whole.layers, strict=True):
        assert torch.equal(ours.keys[:, :, :150], theirs.keys[:, :, :150])
        assert torch.equal(ours.values[:, :, :150], theirs.values[:, :, :150])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_passes_that_are_not_exact_are_close_to_those_that_are(dtype, tmp_path) -> None:
    folder = save_tiny_model(tmp_path / "m", spread=0.02)
    runner = load_model("tiny", folder, "cpu", dtype).runner
    cache = runner.new_cache(16, exact=False)
    assert (cache.exact, cache.grid) == (False, 1)
    tokens = ids_of(20, 6)
    fast = runner.verify(cache, tokens).float()
    exact = runner.verify(runner.new_cache(16), tokens).float()
    bound = 1e-5 if dtype == "float32" else 0.05
    assert (fast - exact).norm() / exact.norm() < bound


def test_a_model_of_another_shape_runs_as_transformers_runs_it() -> None:
    config = Gemma2Config(
        vocab_size=400, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, pad_token_id=None,
    )  # fmt: skip
    from transformers import Gemma2ForCausalLM

    torch.manual_seed(0)
    model = Gemma2ForCausalLM(config).eval()
    runner = EagerRunner(model, 512)
    assert not runner.exact
    tokens = ids_of(30, 7)
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0]
    cache = runner.new_cache(16)
    assert not cache.exact
    torch.testing.assert_close(runner.verify(cache, tokens), expected, rtol=1e-4, atol=1e-4)


def test_the_usual_attention_comes_back_after_an_exact_pass() -> None:
    model = make_model("llama", 400)
    runner = EagerRunner(model, 512)
    tokens = ids_of(10, 8)
    runner.verify(runner.new_cache(16), tokens)
    with torch.inference_mode():
        expected = model(torch.tensor([tokens]), attn_implementation="sdpa").logits[0]
    fast = runner.verify(runner.new_cache(16, exact=False), tokens)
    assert model.config._attn_implementation == "sdpa"
    torch.testing.assert_close(fast, expected)


@pytest.mark.parametrize(
    ("config", "common"),
    [
        (LlamaConfig(), True),
        (Qwen2Config(), True),
        (Qwen2Config(use_sliding_window=True, max_window_layers=1), False),
        (MistralConfig(sliding_window=None), True),
        # Mistral 7B v0.1: a row sees only the last 4096, which our attention does not know.
        (MistralConfig(sliding_window=4096), False),
        (Gemma2Config(), False),
    ],
)
def test_only_models_whose_every_row_sees_all_before_it_have_the_common_shape(
    config, common
) -> None:
    assert has_common_shape(config) is common


@given(st.integers(0, 300), st.integers(0, 200), st.integers(1, 64))
def test_chunks_end_on_the_grid_and_leave_nothing_out(start, count, size) -> None:
    parts = list(chunks(list(range(count)), start, size))
    assert [token for part in parts for token in part] == list(range(count))
    ends = [start + sum(map(len, parts[: i + 1])) for i in range(len(parts))]
    assert all(end % size == 0 for end in ends[:-1])
    assert all(0 < len(part) <= size for part in parts)
