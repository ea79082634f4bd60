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
from tests.engine.adversary import random_parents
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


def test_a_row_of_a_tree_is_the_row_of_a_pass_of_its_own_path(tiny_target) -> None:
    runner = tiny_target.runner
    choice = random.Random(5)
    # Before, at and across the borders of attention's blocks, and with two of them.
    for length in (0, 3, 64, 239, 250, 254, 255, 256, 257, 500, 511):
        prompt = runner.new_cache(16)
        for _ in runner.prefill(prompt, ids_of(length, length)):
            pass
        for _ in range(4):
            count = choice.choice([2, 3, choice.randint(4, runner.max_draft), runner.max_draft])
            parents = random_parents(choice, count)
            tokens = ids_of(count + 1, choice.randrange(10**6))
            cache = prompt.copy_prefix(length, length)
            logits = runner.verify(cache, tokens, parents)
            cache.check_integrity()
            assert cache.tokens[length:] == tokens
            paths = paths_of(parents)
            for path in sorted(paths, key=len)[-3:]:
                alone = prompt.copy_prefix(length, length)
                rows = runner.verify(alone, [tokens[row] for row in path])
                assert torch.equal(logits[list(path)], rows)
            kept = choice.choice(paths)
            cache.keep(kept, length)
            alone = prompt.copy_prefix(length, length)
            for row in kept:
                runner.verify(alone, [tokens[row]])
            assert_same(cache, alone)


def paths_of(parents) -> list[tuple[int, ...]]:
    paths = [(0,)]
    for index, parent in enumerate(parents):
        paths.append((*paths[parent + 1], index + 1))
    return paths


def assert_same(ours, theirs) -> None:
    ours.check_integrity()
    assert ours.tokens == theirs.tokens
    for a, b in zip(ours.layers, theirs.layers, strict=True):
        if a.length:
            assert torch.equal(a.keys[:, :, : a.length], b.keys[:, :, : b.length])
            assert torch.equal(a.values[:, :, : a.length], b.values[:, :, : b.length])


def test_a_pass_over_a_tree_that_fails_half_way_leaves_no_trace(
    tiny_qwen2_int8, monkeypatch
) -> None:
    from engine import attention

    runner = tiny_qwen2_int8.runner
    prompt, tokens = ids_of(250, 1), ids_of(12, 2)
    whole, broken = runner.new_cache(16), runner.new_cache(16)
    for cache in (whole, broken):
        for _ in runner.prefill(cache, prompt):
            pass
    products = attention._products
    for calls in (1, 5, 9, 14):
        left = iter(range(calls))

        def failing(*args, left=left):
            if next(left, None) is None:
                raise RuntimeError("out of memory")
            return products(*args)

        monkeypatch.setattr(attention, "_products", failing)
        with pytest.raises(RuntimeError, match="out of memory"):
            runner.verify(broken, tokens, [-1, 0, 1, 2, -1, 4, 5, 0, 1, 2, 3])
        monkeypatch.setattr(attention, "_products", products)
        broken.rollback(0)
        assert_same(broken, whole)
    assert torch.equal(runner.verify(broken, tokens), runner.verify(whole, tokens))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_trees_are_verified_by_passes_that_are_not_exact_too(dtype, tmp_path) -> None:
    folder = save_tiny_model(tmp_path / "m", spread=0.02)
    runner = load_model("tiny", folder, "cpu", dtype).runner
    fast, exact = runner.new_cache(16, exact=False), runner.new_cache(16)
    prompt, tokens, parents = ids_of(6, 6), ids_of(8, 7), [-1, 0, 1, -1, 0, 4, 3]
    for cache in (fast, exact):
        runner.verify(cache, prompt)
    expected = runner.verify(exact, tokens, parents).float()
    chain = exact.copy_prefix(6, 6)
    assert not torch.equal(runner.verify(chain, tokens).float(), expected)
    found = runner.verify(fast, tokens, parents).float()
    bound = 1e-5 if dtype == "float32" else 0.05
    assert (found - expected).norm() / expected.norm() < bound


def test_a_tree_with_more_rows_than_an_exact_pass_is_refused(tiny_qwen2) -> None:
    runner = tiny_qwen2.runner
    rows = runner.max_draft + 2
    with pytest.raises(ValueError, match="rows"):
        runner.verify(runner.new_cache(16), [5] * rows, [-1] * (rows - 1))


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
