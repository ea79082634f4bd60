from __future__ import annotations

import pytest
import torch
from transformers import Qwen2Config

from engine import int8, loader
from engine.core import EngineError
from engine.dtypes import choose_dtype, product_seconds
from engine.loader import load_model
from engine.placement import placed
from tests.tiny import save_tiny_model

CPU, MPS = torch.device("cpu"), torch.device("mps")
CONFIG = Qwen2Config(hidden_size=64, intermediate_size=96)


def timer(**milliseconds: float):
    def seconds(device, dtype, outputs, inputs) -> float:
        assert (outputs, inputs) == (96, 64)
        return milliseconds[str(dtype).removeprefix("torch.")] / 1000

    return seconds


@pytest.mark.parametrize(
    ("device", "milliseconds", "fastest"),
    [
        (CPU, {"float32": 10.0, "bfloat16": 30.0}, torch.float32),
        (CPU, {"float32": 10.0, "bfloat16": 9.0}, torch.float32),  # nearly as fast: the finer
        (CPU, {"float32": 10.0, "bfloat16": 5.0}, torch.bfloat16),
        (MPS, {"float32": 10.0, "bfloat16": 6.0, "float16": 5.0}, torch.float16),
        (MPS, {"float32": 10.0, "bfloat16": 5.0, "float16": 6.0}, torch.bfloat16),
    ],
)
def test_the_fastest_dtype_is_taken_and_named(device, milliseconds, fastest) -> None:
    held = choose_dtype(None, CONFIG, device, timer(**milliseconds))
    assert held.dtype == fastest
    assert str(fastest).removeprefix("torch.") in held.notice
    assert ("this CPU" in held.notice) is (device == CPU)


def test_what_is_asked_for_is_not_measured() -> None:
    def never(*args) -> float:
        raise AssertionError

    assert choose_dtype("float16", CONFIG, CPU, never) == (torch.float16, "")


@pytest.mark.parametrize("name", ["int7", "float", "int64", "nn"])
def test_a_dtype_that_is_none_is_refused(name) -> None:
    if name == "float":  # torch's other name of float32
        assert choose_dtype(name, CONFIG, CPU).dtype == torch.float32
        return
    with pytest.raises(EngineError, match="use float32, bfloat16 or float16") as caught:
        choose_dtype(name, CONFIG, CPU)
    assert caught.value.code == "invalid_request"


def test_a_product_takes_time() -> None:
    assert product_seconds(CPU, torch.float32, 64, 32) > 0.0


def test_where_the_int8_kernels_are_missing_the_status_says_what_serves(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(int8.model, "is_supported", lambda: False)
    runner = load_model("m", save_tiny_model(tmp_path), "cpu", None).runner
    assert runner.name == "eager"
    assert runner.exact
    assert runner.dtype in runner.notice
    assert loader.INT8 == "cpu-int8"


@pytest.mark.parametrize("device", ["auto", None, "cpu"])
def test_with_one_device_there_is_nothing_to_spread_over(device, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert placed(device) == (CPU, None)


def test_several_gpus_share_a_model_only_when_asked(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert placed("auto") == (torch.device("cuda"), "auto")
    assert placed(None) == (torch.device("cuda"), None)
    assert placed("cuda:1") == (torch.device("cuda:1"), None)
