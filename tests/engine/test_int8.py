from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from engine.attention import BLOCK, row_invariant_attention
from engine.core import Cancelled, EngineError
from engine.int8.linear import Int8Linear, Weight, is_supported, quantise, scaled_rows
from engine.int8.model import can_run_int8
from engine.int8.shapes import expected_shapes, linear_names
from engine.int8.weights import ensure_int8, int8_folder
from engine.kv_cache import GROWTH
from engine.loader import load_model
from tests.engine.conftest import load_on_one_thread
from tests.tiny import make_tokenizer, save_tiny_model

pytestmark = pytest.mark.skipif(
    not is_supported(), reason="this torch has no FBGEMM kernels, so there is no int8 runner here"
)

SHAPE: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def seeded(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def linear_of(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Int8Linear:
    made = Weight(*quantise(weight))
    made.pack()
    return Int8Linear(made, bias)


@pytest.mark.parametrize("bias", [None, 3.0])
def test_a_linear_is_close_to_its_float_form(bias) -> None:
    weight, x = seeded(96, 64), seeded(9, 64)
    offset = None if bias is None else torch.full((96,), bias)
    exact = torch.nn.functional.linear(x, weight, offset)
    ours = linear_of(weight, offset)(x)
    assert (ours - exact).norm() / exact.norm() < 0.03


def test_a_row_of_a_linear_does_not_depend_on_its_neighbours() -> None:
    linear = linear_of(seeded(96, 64))
    x = seeded(33, 64)
    x[3] *= 1000.0
    x[5] = 0.0
    together = linear(x)
    for row in range(33):
        assert torch.equal(linear(x[row : row + 1]), together[row : row + 1])
    assert torch.equal(together[5], torch.zeros(96))


def test_quantising_keeps_every_weight_within_half_a_step() -> None:
    weight = seeded(20, 30)
    weight[4] = 0.0
    int8, scale = quantise(weight)
    assert int8.dtype == torch.int8
    error = (int8 * scale[:, None] - weight).abs()
    assert (error <= scale[:, None] * 0.5001).all()


@pytest.mark.parametrize(
    ("config", "runs"),
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
def test_only_models_whose_every_row_sees_all_before_it_run_in_int8(config, runs) -> None:
    assert can_run_int8(config) is runs


def buffers(heads: int, length: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    capacity = -(-length // GROWTH) * GROWTH + GROWTH
    made = []
    for _ in range(2):
        buffer = torch.full((1, heads, capacity, size), 7.0)
        buffer[:, :, :length] = seeded(1, heads, length, size)
        made.append(buffer[:, :, :length])
    return made[0], made[1]


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize(("length", "rows"), [(1, 1), (40, 3), (256, 8), (257, 5), (700, 33)])
def test_attention_equals_the_plain_formula(length, rows, kv_heads) -> None:
    key, value = buffers(kv_heads, length)
    query = seeded(1, 4, rows, 16)
    ours, _ = row_invariant_attention(None, query, key, value, None)
    mask = torch.arange(length) <= torch.arange(length - rows, length)[:, None]
    plain = torch.nn.functional.scaled_dot_product_attention(
        query,
        key.repeat_interleave(4 // kv_heads, 1),
        value.repeat_interleave(4 // kv_heads, 1),
        attn_mask=mask,
    )
    torch.testing.assert_close(ours, plain.transpose(1, 2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("length", [20, BLOCK, BLOCK + 7, 3 * BLOCK + 1])
def test_a_row_of_attention_does_not_depend_on_its_neighbours(length, kv_heads, threads) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        key, value = buffers(kv_heads, length)
        query = seeded(1, 4, 17, 16)
        together, _ = row_invariant_attention(None, query, key, value, None)
        for first in range(17):
            for count in (1, 2, 5):
                rows = query[:, :, first : first + count]
                end = length - 17 + first + rows.shape[2]
                part, _ = row_invariant_attention(
                    None, rows, key[:, :, :end], value[:, :, :end], None
                )
                assert torch.equal(part, together[:, first : first + count])
    finally:
        torch.set_num_threads(before)


def test_states_that_are_no_buffer_of_ours_give_the_same() -> None:
    key, value = buffers(2, 300)
    query = seeded(1, 4, 5, 16)
    ours, _ = row_invariant_attention(None, query, key, value, None)
    copied, _ = row_invariant_attention(None, query, key.clone(), value.clone(), None)
    assert torch.equal(ours, copied)


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_whole_model_is_close_to_its_float_form(kind, tied, tmp_path) -> None:
    folder = save_tiny_model(tmp_path / kind, kind, tied=tied, spread=0.02)
    ours = load_model("tiny", folder, "cpu", None)
    assert (ours.runner.name, ours.runner.dtype) == ("cpu-int8", "int8")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    ids = list(range(10, 60))
    with torch.inference_mode():
        exact = model(torch.tensor([ids])).logits[0]
    logits = ours.runner.verify(ours.runner.new_cache(64), ids)
    assert (logits - exact).norm() / exact.norm() < 0.05


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_the_logits_of_a_row_do_not_depend_on_the_window(kind, tmp_path) -> None:
    target = load_model("tiny", save_tiny_model(tmp_path / kind, kind), "cpu", "int8")
    runner, vocabulary = target.runner, target.tokenizer.get_vocab_size()
    ids = [(i * 37) % vocabulary for i in range(300)]

    def logits(window: int) -> torch.Tensor:
        cache = runner.new_cache(300)
        return torch.cat(
            [runner.verify(cache, ids[i : i + window]) for i in range(0, len(ids), window)]
        )

    alone = logits(1)
    for window in (2, 3, 7, 16, 33, 150):
        assert torch.equal(logits(window), alone)


def test_the_weights_are_made_once(tmp_path) -> None:
    folder = save_tiny_model(tmp_path / "m")
    load_model("tiny", folder, "cpu", "int8")
    made = int8_folder(folder)
    first = {file: file.stat().st_mtime_ns for file in made.iterdir()}
    load_model("tiny", folder, "cpu", "int8")
    assert {file: file.stat().st_mtime_ns for file in made.iterdir()} == first


def test_a_cancelled_conversion_leaves_nothing_behind(tmp_path) -> None:
    folder = save_tiny_model(tmp_path / "m", seed=5)
    with pytest.raises(Cancelled):
        ensure_int8(folder, ["lm_head.weight"], lambda progress: None, lambda: True)
    assert not int8_folder(folder).exists()
    assert not list(int8_folder(folder).parent.glob(f".{int8_folder(folder).name}.*"))


def test_what_killed_and_earlier_conversions_left_is_removed(tmp_path) -> None:
    def make(folder) -> Path:
        return ensure_int8(folder, ["lm_head.weight"], lambda progress: None, lambda: False)

    folder = save_tiny_model(tmp_path / "changing", seed=5)
    other = make(save_tiny_model(tmp_path / "other", seed=5))
    earlier = make(folder)
    save_tiny_model(folder, seed=6)
    killed = int8_folder(folder).parent / f".{int8_folder(folder).name}.abc"
    killed.mkdir()
    later = make(folder)
    assert later != earlier
    assert [path.exists() for path in (later, other, earlier, killed)] == [True, True, False, False]


def test_int8_on_an_architecture_without_it_is_refused_by_name(tmp_path, monkeypatch) -> None:
    folder = save_tiny_model(tmp_path / "m")
    monkeypatch.setattr("engine.loader.can_run_int8", lambda config: False)
    with pytest.raises(EngineError, match="qwen2") as caught:
        load_model("tiny", folder, "cpu", "int8")
    assert caught.value.code == "invalid_request"
    assert load_model("tiny", folder, "cpu", None).runner.name == "eager"


def test_a_layer_that_is_packed_in_parts_maps_the_same(monkeypatch) -> None:
    weight, bias, x = seeded(100, 64), torch.arange(100.0), seeded(5, 64)
    whole = linear_of(weight, bias)(x)
    monkeypatch.setattr("engine.int8.linear.LARGE_ROWS", 64)
    monkeypatch.setattr("engine.int8.linear.PART_ROWS", 32)
    assert torch.equal(linear_of(weight, bias)(x), whole)


@pytest.mark.parametrize("rows", [1, 2, 9])
@pytest.mark.parametrize(("out", "size"), [(40, 64), (700, 96), (33, 2048), (20, 5000)])
def test_a_weight_gives_the_same_bits_before_and_after_it_is_packed(out, size, rows) -> None:
    int8, scale = quantise(seeded(out, size))
    # The largest sums there can be, and rows that lie between two numbers of the grid.
    int8[0] = 64
    x = scaled_rows(seeded(rows, size)).rows
    x[0] = 1.0
    x[-1, : size // 2] = (torch.arange(size // 2) % 127 + 0.5) / 127
    weight = Weight(int8, scale)
    before = weight.product(x)
    weight.pack()
    assert torch.equal(weight.product(x), before)


def test_a_model_runs_on_weights_that_nobody_packs(tmp_path, monkeypatch) -> None:
    folder = save_tiny_model(tmp_path / "m")
    ids = list(range(10, 30))
    packed = load_model("m", folder, "cpu", "int8").runner
    expected = packed.verify(packed.new_cache(30), ids)

    release = threading.Event()
    pack = Weight.pack
    monkeypatch.setattr(Weight, "pack", lambda weight: release.wait() and pack(weight))
    runner = load_model("m", folder, "cpu", "int8", wait=False).runner
    cache = runner.new_cache(30)
    assert list(runner.prefill(cache, ids[:12]))[-1] == 12
    first = runner.verify(cache, ids[12:15])
    # A long prefill waits, and lets its caller stop it meanwhile.
    waiting = runner.prefill(runner.new_cache(100), [1] * 65)
    assert [next(waiting), next(waiting)] == [0.0, 0.0]
    del waiting
    release.set()
    assert torch.equal(torch.cat([first, runner.verify(cache, ids[15:])]), expected[12:])


def test_what_goes_wrong_while_packing_is_told_to_who_waits(tmp_path, monkeypatch) -> None:
    def fail(weight: Weight) -> None:
        raise MemoryError

    folder = save_tiny_model(tmp_path / "m")
    load_model("m", folder, "cpu", "int8")
    monkeypatch.setattr(Weight, "pack", fail)
    with pytest.raises(EngineError) as caught:
        load_model("m", folder, "cpu", "int8")
    assert caught.value.code == "out_of_memory"
    runner = load_model("m", folder, "cpu", "int8", wait=False).runner
    with pytest.raises(MemoryError):
        list(runner.prefill(runner.new_cache(100), [1] * 65))


def test_packing_ends_with_the_runner(tmp_path, monkeypatch) -> None:
    folder = save_tiny_model(tmp_path / "m")
    load_model("m", folder, "cpu", "int8")
    began, release, packed = threading.Event(), threading.Event(), []

    def pack(weight: Weight) -> None:
        packed.append(weight)
        began.set()
        release.wait()

    monkeypatch.setattr(Weight, "pack", pack)
    loaded = load_model("m", folder, "cpu", "int8", wait=False)
    threads = torch.get_num_threads()
    pool = loaded.runner._packing._pool  # type: ignore[attr-defined]
    began.wait()
    del loaded
    gc.collect()
    release.set()
    pool.shutdown(wait=True)
    assert len(packed) <= threads


@pytest.mark.parametrize(
    "config",
    [
        Qwen2Config(**SHAPE),
        Qwen2Config(**SHAPE, tie_word_embeddings=True),
        Qwen3Config(**SHAPE, head_dim=24),
        Qwen3Config(**SHAPE, attention_bias=True),
        LlamaConfig(**SHAPE),
        LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True, head_dim=8),
        MistralConfig(**SHAPE, sliding_window=None),
    ],
    ids=lambda config: config.model_type,
)
def test_the_weights_expected_are_those_of_the_transformers_model(config) -> None:
    model = AutoModelForCausalLM.from_config(config)
    theirs = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        del theirs["lm_head.weight"]
    assert expected_shapes(config) == theirs
    linears = {n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)}
    assert set(linear_names(config)) == linears


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (Qwen3Config(**SHAPE, head_dim=24), torch.bfloat16),
        (LlamaConfig(**SHAPE, attention_bias=True, mlp_bias=True), torch.float16),
        (
            LlamaConfig(
                **SHAPE,
                rope_parameters={
                    "rope_type": "llama3",
                    "rope_theta": 5000.0,
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 32,
                },
            ),
            torch.float32,
        ),
        (LlamaConfig(**SHAPE, hidden_act="gelu"), torch.float32),
        (MistralConfig(**SHAPE, sliding_window=None), torch.float32),
    ],
    ids=["qwen3", "llama with biases", "llama 3.1", "another activation", "mistral"],
)
def test_every_shape_is_close_to_its_float_form(config, dtype, tmp_path) -> None:
    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter, std=0.5)
    model.save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    ids = list(range(10, 60))
    with torch.inference_mode():
        exact = model.float()(torch.tensor([ids])).logits[0]
    runner = load_model("tiny", tmp_path, "cpu", "int8").runner
    logits = runner.verify(runner.new_cache(64), ids)
    assert (logits - exact).norm() / exact.norm() < 0.05


def test_angles_that_change_with_the_length_are_left_to_transformers() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    assert not can_run_int8(LlamaConfig(**SHAPE, rope_parameters=rope))


@pytest.mark.parametrize(
    ("start", "imported"),
    [("first", "transformers.modeling_utils"), ("second", "transformers")],
)
def test_a_start_imports_no_more_of_transformers_than_it_needs(
    tmp_path, start: str, imported: str
) -> None:
    folder = save_tiny_model(tmp_path / "m")
    if start == "second":
        load_on_one_thread("m", folder, "int8")
    program = (
        "import sys; from pathlib import Path; from engine.host import ModelHost\n"
        "from engine.loader import load_model\n"
        "loaded = load_model('m', Path(sys.argv[1]), 'cpu', 'int8')\n"
        "loaded.runner.verify(loaded.runner.new_cache(9), [1, 2])\n"
        "print([m for m in sys.modules if m.startswith(sys.argv[2])])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(folder), imported],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "[]"
