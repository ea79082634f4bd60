"""A converted GGUF file is the model that it was made of."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.core import Cancelled, EngineError, Progress
from engine.gguf_convert import convert, read
from engine.gguf_convert.rope import llama3_divisors
from engine.gguf_convert.weights import to_bfloat16, unpack_rows
from tests.engine.store import tiny

CODE = "def area(w, h):\n    return  w * h  # größe\n"


def run(path: Path, folder: Path) -> list[Progress]:
    folder.mkdir()
    said: list[Progress] = []
    convert(path, folder, said.append, lambda: False)
    return said


def logits(model: torch.nn.Module) -> torch.Tensor:
    ids = torch.arange(3, 43).reshape(1, -1)
    with torch.no_grad():
        return model(ids).logits


@pytest.mark.parametrize(
    "model",
    [tiny.qwen2(), tiny.qwen2(tied=True), tiny.llama(), tiny.llama(scaled=True)],
    ids=["qwen2", "qwen2 tied", "llama", "llama scaled"],
)
def test_the_converted_model_computes_what_the_original_computes(tmp_path, model):
    run(tiny.write_gguf(model, tmp_path / "tiny.gguf"), tmp_path / "out")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    torch.testing.assert_close(logits(ours), logits(model), rtol=1e-4, atol=1e-4)


def test_tied_embeddings_are_stored_once_and_tied_again(tmp_path):
    run(tiny.write_gguf(tiny.qwen2(tied=True), tmp_path / "tiny.gguf"), tmp_path / "out")
    assert "lm_head.weight" not in load_file(tmp_path / "out" / "model.safetensors")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert ours.lm_head.weight.data_ptr() == ours.model.embed_tokens.weight.data_ptr()


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q5_0])
def test_quantised_tensors_are_unpacked_as_the_gguf_package_unpacks_them(tmp_path, kind):
    kinds = {"blk.0.ffn_gate.weight": kind, "token_embd.weight": kind}
    path = tiny.write_gguf(tiny.qwen2(), tmp_path / "tiny.gguf", kinds)
    run(path, tmp_path / "out")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    for tensor in gguf.GGUFReader(path).tensors:
        if tensor.name not in kinds:
            continue
        expected = torch.from_numpy(gguf.dequantize(tensor.data, kind)).to(torch.bfloat16)
        ours = {
            "blk.0.ffn_gate.weight": "model.layers.0.mlp.gate_proj.weight",
            "token_embd.weight": "model.embed_tokens.weight",
        }[tensor.name]
        assert torch.equal(stored[ours], expected)


def test_a_part_of_the_rows_is_unpacked_as_in_the_whole(tmp_path):
    kind = GGMLQuantizationType.Q8_0
    path = tiny.write_gguf(tiny.qwen2(), tmp_path / "tiny.gguf", {"blk.1.ffn_up.weight": kind})
    tensor = next(t for t in read(path).tensors if t.name == "blk.1.ffn_up.weight")
    packed = np.fromfile(path, np.uint8)
    whole = unpack_rows(packed, tensor, 0, tiny.HIDDEN).reshape(tiny.HIDDEN, tiny.WIDTH)
    part = unpack_rows(packed, tensor, 17, 30).reshape(30, tiny.WIDTH)
    assert np.array_equal(part, whole[17:47])


def test_bfloat16_rounds_half_to_even():
    numbers = np.array([1.0, 1.00390625, 1.01171875, -2.0], np.float32)
    assert to_bfloat16(numbers).tolist() == [0x3F80, 0x3F80, 0x3F82, 0xC000]


def test_the_tokenizer_and_template_come_from_the_file(tmp_path):
    path = tiny.write_gguf(tiny.qwen2(), tmp_path / "tiny.gguf")
    run(path, tmp_path / "out")
    ours = AutoTokenizer.from_pretrained(tmp_path / "out")
    reference = AutoTokenizer.from_pretrained(tmp_path, gguf_file="tiny.gguf")
    text = f"<|im_start|>{CODE}<|im_end|>"
    assert ours.encode(text) == reference.encode(text)
    assert ours.decode(ours.encode(text)) == text
    assert ours.encode("<|im_start|>") == [tiny.TOKENS.index("<|im_start|>")]
    assert ours.eos_token_id == tiny.EOS
    rendered = ours.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_the_config_says_dtype_end_token_and_size(tmp_path):
    run(tiny.write_gguf(tiny.qwen2(), tmp_path / "tiny.gguf"), tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    wanted = {"dtype": "bfloat16", "eos_token_id": tiny.EOS, "vocab_size": len(tiny.TOKENS)}
    assert {key: config[key] for key in wanted} == wanted
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text("utf-8"))
    assert generation["eos_token_id"] == tiny.EOS


def test_progress_goes_from_nothing_to_all(tmp_path):
    said = run(tiny.write_gguf(tiny.qwen2(), tmp_path / "tiny.gguf"), tmp_path / "out")
    fractions = [progress.fraction for progress in said]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)
    assert {progress.phase for progress in said} == {"converting"}


def test_cancelling_stops_the_conversion(tmp_path):
    path = tiny.write_gguf(tiny.qwen2(), tmp_path / "tiny.gguf")
    (tmp_path / "out").mkdir()
    with pytest.raises(Cancelled):
        convert(path, tmp_path / "out", lambda progress: None, lambda: True)


@pytest.mark.parametrize("architecture", ["mamba9", "qwen2moe", "t5"])
def test_an_unsupported_architecture_is_named(tmp_path, architecture):
    path = tiny.write_gguf(tiny.qwen2(), tmp_path / "tiny.gguf", architecture=architecture)
    with pytest.raises(EngineError, match=repr(architecture)) as caught:
        run(path, tmp_path / "out")
    assert caught.value.code == "unsupported_model"


def test_a_file_without_one_of_the_tensors_is_refused(tmp_path):
    path = tiny.write_gguf(
        tiny.qwen2(), tmp_path / "tiny.gguf", left_out=("blk.1.attn_norm.weight",)
    )
    with pytest.raises(EngineError, match="input_layernorm") as caught:
        run(path, tmp_path / "out")
    assert caught.value.code == "unsupported_model"


@pytest.mark.parametrize("kept", [0, 3, 20, 200, 5000, -1])
def test_a_truncated_file_is_refused_and_named(tmp_path, kept):
    path = tiny.write_gguf(tiny.qwen2(), tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(EngineError, match=r"tiny\.gguf") as caught:
        read(path)
    assert caught.value.code in ("unsupported_model", "model_not_found")


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04" * 99, b"GGUF" + b"\xff" * 99, b"GGUF\x03\0\0\0" + b"\xff" * 99]
)
def test_a_file_that_is_no_gguf_is_refused(tmp_path, content):
    path = tmp_path / "photo.gguf"
    path.write_bytes(content)
    with pytest.raises(EngineError, match="not a whole GGUF file") as caught:
        read(path)
    assert caught.value.code == "unsupported_model"


def test_llama3_divisors_keep_fast_turns_and_divide_slow_ones():
    divisors = llama3_divisors(500_000.0, 64, 8.0)
    assert divisors[0] == 1.0
    assert divisors[-1] == 8.0
    assert np.all(np.diff(divisors) >= 0)


def test_a_byte_level_tokenizer_of_a_llama_keeps_its_bytes(tmp_path):
    run(tiny.write_gguf(tiny.llama(), tmp_path / "tiny.gguf"), tmp_path / "out")
    ours = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert ours.decode(ours.encode(CODE)) == CODE
    assert tiny.TOKENS.index("return") in ours.encode(CODE)


def test_the_tokenizer_file_does_not_normalise_unicode(tmp_path):
    run(tiny.write_gguf(tiny.qwen2(), tmp_path / "tiny.gguf"), tmp_path / "out")
    raw = Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    text = "e\u0301 \u00e9 \u212b"
    assert raw.decode(raw.encode(text).ids) == text
