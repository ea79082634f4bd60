"""The CUDA-graph runner. On the CPU its passes are run instead of captured: the same code."""

from __future__ import annotations

import gc
import random
import time
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cuda.passes import StaticPass, packed_verdict
from engine.cuda.runner import LADDER, SHORTEST_CONTEXT, CudaGraphRunner, repeated
from engine.kv_cache import KVCache
from engine.prefix import PrefixCache
from engine.sampling import accept
from engine.sampling.settings import Sampling
from tests.tiny import make_model

GREEDY = Sampling()
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def ids_of(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(3, 280), k=count)


def runner_of(kind: str = "qwen2", dtype: str = "float32", **more) -> CudaGraphRunner:
    model = make_model(kind, 300).to(getattr(torch, dtype))
    return CudaGraphRunner(model, 2000, **more)


@pytest.fixture(scope="module", params=["qwen2-float32", "llama-float32", "qwen2-bfloat16"])
def runner(request) -> CudaGraphRunner:
    return runner_of(*request.param.split("-"))


def read(runner: CudaGraphRunner, tokens: list[int], exact: bool = True) -> KVCache:
    cache = runner.new_cache(len(tokens), exact)
    for _ in runner.prefill(cache, tokens):
        pass
    return cache


def decoded(runner: CudaGraphRunner, cache: KVCache, last: int, count: int) -> list[int]:
    """Plain greedy decoding."""
    answer: list[int] = []
    while len(answer) < count:
        (last,) = runner.verify_greedy(cache, [last]).tokens
        answer.append(last)
    return answer


def attacked(
    runner: CudaGraphRunner, cache: KVCache, last: int, likely: list[int], seed: int
) -> list[int]:
    """The same under an adversary whose drafts are right, wrong or half right."""
    adversary = random.Random(seed)
    answer: list[int] = []
    while len(answer) < len(likely):
        length = adversary.randint(0, min(runner.max_draft, len(likely) - len(answer) - 1))
        draft = adversary.choices(range(3, 280), k=length)
        right = adversary.randint(0, length)
        draft[:right] = likely[len(answer) : len(answer) + right]
        tokens, accepted, margins, path = runner.verify_greedy(cache, [last, *draft])
        assert (len(tokens), len(margins)) == (accepted + 1, accepted + 1)
        assert path == list(range(accepted))
        cache.rollback(length - accepted)
        answer += tokens
        last = tokens[-1]
    return answer


def test_a_longer_rung_of_slots_changes_no_bit(runner) -> None:
    tokens = ids_of(900, 1)
    cache = read(runner, tokens)
    short = runner.verify(cache, [5, 6, 7])
    cache.rollback(3)
    # As if the sequence had grown into the next rung, whose other slots hold anything.
    runner._workspace.states[:, :, :, 1000:] = 3.0
    longer = StaticPass(runner._model, runner._workspace, 32, 2048, runner._run, repeated)
    assert torch.equal(longer.run(900, [5, 6, 7]), short)


def test_logits_are_those_of_transformers(runner) -> None:
    tokens = ids_of(300, 2)
    cache = read(runner, tokens[:290])
    ours = runner.verify(cache, tokens[290:])
    model = make_model("llama" if "Llama" in type(runner._model).__name__ else "qwen2", 300)
    with torch.inference_mode():
        theirs = model.to(runner._model.dtype)(torch.tensor([tokens])).logits[0, 290:]
    bound = 1e-4 if runner.dtype == "float32" else 0.15
    assert (ours - theirs).norm() / theirs.norm() < bound


@pytest.mark.parametrize("context", [240, SHORTEST_CONTEXT - 30], ids=["in a rung", "over its end"])
def test_drafts_never_change_a_token(runner, context) -> None:
    prompt = ids_of(context, 3)
    expected = decoded(runner, read(runner, prompt[:-1]), prompt[-1], 60)
    for seed in range(5):
        cache = read(runner, prompt[:-1])
        assert attacked(runner, cache, prompt[-1], expected, seed) == expected
        cache.check_integrity()


def test_sequences_that_take_turns_do_not_disturb_each_other(runner) -> None:
    prompts = [ids_of(100 + 60 * i, 10 + i) for i in range(3)]
    expected = [decoded(runner, read(runner, p[:-1]), p[-1], 40) for p in prompts]
    caches = [read(runner, p[:-1]) for p in prompts]
    answers: list[list[int]] = [[], [], []]
    turns = random.Random(5)
    while open_ones := [i for i in range(3) if len(answers[i]) < 40]:
        i = turns.choice(open_ones)
        likely = expected[i][len(answers[i]) :][: turns.randint(1, 9)]
        last = answers[i][-1] if answers[i] else prompts[i][-1]
        answers[i] += attacked(runner, caches[i], last, likely, turns.randint(0, 99))
    assert answers == expected
    for cache in caches:
        cache.check_integrity()


def test_a_kept_prefix_holds_what_a_fresh_prefill_would(runner) -> None:
    prompt = ids_of(600, 20)
    other = [*prompt[:520], *ids_of(60, 21)]
    fresh = decoded(runner, read(runner, other[:-1]), other[-1], 20)
    prefix = PrefixCache(runner, 1 << 30)
    cache = prefix.take(prompt[:-1], 700)
    for _ in runner.prefill(cache, prompt[:-1]):
        pass
    decoded(runner, cache, prompt[-1], 10)
    prefix.give_back(cache, prompt[:-1])
    assert (prefix.sequences, prefix.bytes > 0) == (1, True)
    reused = prefix.take(other[:-1], 700)
    assert reused.length == 512  # whole chunks, and no row of a pass
    for _ in runner.prefill(reused, other[512:-1]):
        pass
    assert decoded(runner, reused, other[-1], 20) == fresh


def test_a_sequence_that_has_left_the_workspace_is_trimmed_and_cut(runner) -> None:
    prompt = ids_of(300, 22)
    cache = read(runner, prompt)
    logits = runner.verify(cache, [9])
    cache.rollback(1)
    read(runner, ids_of(40, 23))  # takes its place
    assert cache.bytes == cache.stored.nbytes  # type: ignore[attr-defined]
    cache.rollback(250)
    cache.trim()
    assert cache.stored.shape[3] == 256  # type: ignore[attr-defined]
    copy = cache.copy_prefix(30, 100)
    cache.check_integrity()
    copy.check_integrity()
    for sequence in (cache, copy):
        for _ in runner.prefill(sequence, prompt[sequence.length : 256]):
            pass
    # Not in whole chunks, so near and not the same.
    for _ in runner.prefill(cache, prompt[256:]):
        pass
    torch.testing.assert_close(runner.verify(cache, [9]), logits, rtol=0.1, atol=0.5)
    with pytest.raises(ValueError, match="cannot copy"):
        cache.copy_prefix(302, 400)


def test_a_dropped_sequence_leaves_the_workspace_to_the_next(runner) -> None:
    cache = read(runner, ids_of(40, 24))
    del cache
    gc.collect()
    other = read(runner, ids_of(50, 25))
    assert runner.verify(other, [7]).shape == (1, 300)


def test_the_verdict_on_the_device_is_that_of_the_logits(runner) -> None:
    prompt = ids_of(70, 26)
    cache = read(runner, prompt)
    likely = decoded(runner, cache.copy_prefix(70, 100), 5, 12)
    for draft in ([], likely[:6], [*likely[:3], 1, 2], [1, 2, 3], likely[:11]):
        logits = runner.verify(cache, [5, *draft])
        cache.rollback(len(draft) + 1)
        ours = runner.verify_greedy(cache, [5, *draft])
        cache.rollback(len(draft) + 1)
        theirs = accept(logits, draft, [*prompt, 5], GREEDY)
        assert ours[:2] == theirs[:2]
        assert ours.margins == pytest.approx(theirs.margins)


def test_rows_that_fill_a_pass_up_are_never_accepted() -> None:
    logits = torch.zeros(8, 10)
    logits[:, 0] = 1.0  # what the filling repeats
    ids = torch.zeros(8, dtype=torch.long)
    packed = packed_verdict(logits, ids, torch.tensor(3))
    assert packed[0] == 2
    assert packed[1:9].tolist() == [0.0] * 8


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_the_verdict_is_that_of_the_logits_where_tokens_are_equally_likely_too(data) -> None:
    rows, vocabulary = data.draw(st.integers(1, 8)), data.draw(st.sampled_from([1, 2, 5, 70]))
    dtype = data.draw(st.sampled_from([torch.float32, torch.bfloat16]))
    # Few different values, so that the best one is often there twice.
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
    logits = torch.randint(-2, 3, (rows, vocabulary), generator=generator).to(dtype)
    own = logits.argmax(dim=-1).tolist()
    count = data.draw(st.integers(1, rows))
    right = data.draw(st.integers(0, count - 1))
    wrong = st.lists(
        st.integers(0, vocabulary - 1), min_size=count - 1 - right, max_size=count - 1 - right
    )
    draft = own[:right] + data.draw(wrong)
    # What fills the pass up is what the target would say.
    ids = torch.tensor([0, *draft, *own[count - 1 : rows - 1]])
    packed = packed_verdict(logits, ids, torch.tensor(count)).tolist()
    expected = accept(logits[:count], draft, [0], GREEDY)
    accepted = int(packed[0])
    assert accepted == expected.accepted
    assert packed[1 : accepted + 2] == expected.tokens
    assert packed[1 + rows : accepted + 2 + rows] == expected.margins


def test_one_copy_in_and_one_out_is_all_that_a_greedy_pass_moves(monkeypatch) -> None:
    runner = runner_of()
    cache = read(runner, ids_of(40, 27))
    runner.verify_greedy(cache, [5, 6])
    copies: list[object] = []
    copy = torch.Tensor.copy_
    monkeypatch.setattr(
        torch.Tensor, "copy_", lambda self, *a, **k: copies.append(self) or copy(self, *a, **k)
    )
    one = runner._pass_for(cache, 32)
    runner.verify_greedy(cache, [7, 8, 9])
    assert copies == [one._input, one._verdict_here]


@pytest.mark.parametrize(("rows", "rung"), [(1, 1), (2, 2), (3, 4), (33, 64), (128, 128)])
def test_without_the_promise_the_shortest_pass_that_fits_runs(rows, rung) -> None:
    runner = runner_of()
    cache = read(runner, ids_of(20, 28), exact=False)
    runner._passes.clear()
    fast = runner.verify(cache, ids_of(rows, 29))
    assert list(runner._passes) == [(rung, 1024, 0)]
    exact = runner.verify(read(runner, ids_of(20, 28)), ids_of(rows, 29))
    torch.testing.assert_close(fast, exact, rtol=1e-3, atol=1e-3)
    assert rung in LADDER


def test_every_shape_is_captured_once_and_then_replayed() -> None:
    captured, replayed = [], []

    def capture(work):
        captured.append(work)
        work()
        return lambda: replayed.append(1) or work()

    runner = runner_of(capture=capture)
    cache = read(runner, ids_of(300, 30))
    for token in range(5, 15):
        runner.verify_greedy(cache, [token])
    # A chunk of 256, a chunk filled up to 256, and the pass of 32.
    assert (len(captured), len(replayed)) == (2, 12)


def test_no_capture_is_in_what_the_cost_model_is_told(monkeypatch) -> None:
    now = 0.0

    def capture(work):
        nonlocal now
        now += 100.0
        work()

        def repeat() -> None:
            nonlocal now
            now += 1.0
            work()

        return repeat

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    seconds = runner_of(capture=capture).probe()
    # In the order of the measurement, which changes the sequence at each context.
    times = [seconds(rows, context) for context in (64, 1100) for rows in (1, 8, 32)]
    assert times == [1.0] * 6


def test_compiled_passes_promise_nothing() -> None:
    runner = runner_of(compile=True)
    assert (runner.exact, runner.max_draft) == (False, 127)
    assert "compiled" in runner.notice
    cache = runner.new_cache(16)
    assert (cache.exact, cache.grid) == (False, 1)


def test_a_prefill_makes_no_logits() -> None:
    runner = runner_of()
    head, rows = runner._model.lm_head, []
    head.register_forward_hook(lambda *call: rows.append(call[2].shape[1]))
    cache = read(runner, ids_of(300, 32))
    assert rows == []
    runner.verify(cache, [5])
    assert set(rows) == {32}


def test_a_sequence_may_fill_the_whole_window() -> None:
    runner = CudaGraphRunner(make_model("qwen2", 300), 600)
    assert runner.max_context == 600
    prompt = ids_of(560, 31)
    cache = read(runner, prompt)
    assert len(decoded(runner, cache, 5, 40)) == 40
    assert cache.length == 600


@needs_gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")
def test_the_second_gpu_gives_what_the_first_gives() -> None:
    prompt = ids_of(240, 3)
    answers = []
    for device in ("cuda:0", "cuda:1"):
        model: Any = make_model("qwen2", 300)
        runner = CudaGraphRunner(model.to(device, torch.bfloat16), 2000)
        answers.append(decoded(runner, read(runner, prompt[:-1]), prompt[-1], 60))
    assert answers[0] == answers[1]


@needs_gpu
def test_captured_passes_give_what_passes_give() -> None:
    model: Any = make_model("qwen2", 300)
    model.to("cuda", torch.bfloat16)
    graphs = CudaGraphRunner(model, 2000)
    prompt = ids_of(240, 3)
    expected = decoded(graphs, read(graphs, prompt[:-1]), prompt[-1], 60)
    for seed in range(8):
        cache = read(graphs, prompt[:-1])
        assert attacked(graphs, cache, prompt[-1], expected, seed) == expected
