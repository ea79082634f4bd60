"""Tiny models and the GGUF files that llama.cpp's converter would make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, TokenType
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
from transformers.convert_slow_tokenizer import bytes_to_unicode

from engine.gguf_convert import rope

LAYERS, HEADS, KV_HEADS, WIDTH, HIDDEN = 2, 4, 2, 64, 96
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ Ġ", "d e", "de f", "r e", "t u", "r n", "re tu", "retu rn"]
TOKENS = [*bytes_to_unicode().values(), *(merge.replace(" ", "") for merge in MERGES), *SPECIAL]
EOS = TOKENS.index("<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COMMON: dict[str, Any] = dict(
    vocab_size=len(TOKENS),
    hidden_size=WIDTH,
    intermediate_size=HIDDEN,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    num_key_value_heads=KV_HEADS,
    max_position_embeddings=512,
    rms_norm_eps=1e-6,
)


def qwen2(tied: bool = False) -> Qwen2ForCausalLM:
    """A random Qwen2 whose weights are bfloat16 numbers."""
    config = Qwen2Config(**COMMON, tie_word_embeddings=tied, rope_parameters=_rope(10_000.0))
    return _random(Qwen2ForCausalLM(config))


def llama(scaled: bool = False) -> LlamaForCausalLM:
    """A random Llama, with the position scaling of Llama 3.1 if `scaled`."""
    parameters = _rope(500_000.0)
    if scaled:
        parameters = {
            **parameters,
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        }
    config = LlamaConfig(**COMMON, tie_word_embeddings=False, rope_parameters=parameters)
    return _random(LlamaForCausalLM(config))


def write_gguf(
    model: Any,
    path: Path,
    kinds: dict[str, GGMLQuantizationType] | None = None,
    architecture: str | None = None,
    left_out: tuple[str, ...] = (),
) -> Path:
    """Write `model` as a GGUF file; `kinds` says which tensors (GGUF names) are quantised."""
    config = model.config
    arch = architecture or config.model_type
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name("Tiny")
    writer.add_block_count(LAYERS)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([_type(token) for token in TOKENS])
    writer.add_token_merges(MERGES)
    writer.add_eos_token_id(EOS)
    writer.add_bos_token_id(TOKENS.index("<|endoftext|>"))
    writer.add_pad_token_id(TOKENS.index("<|endoftext|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    _add_tensors(writer, model, kinds or {}, left_out)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tensors(
    writer: gguf.GGUFWriter,
    model: Any,
    kinds: dict[str, GGMLQuantizationType],
    left_out: tuple[str, ...],
) -> None:
    model_type = model.config.model_type
    arch = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == model_type)
    names = gguf.get_tensor_name_map(arch, LAYERS)
    for name, parameter in model.named_parameters():
        gguf_name = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert gguf_name is not None
        if gguf_name in left_out:
            continue
        weights = parameter.detach().numpy()
        if model_type == "llama" and name.endswith(("q_proj.weight", "k_proj.weight")):
            weights = _permuted(weights, HEADS if "q_proj" in name else KV_HEADS)
        kind = kinds.get(gguf_name)
        if kind is None:
            writer.add_tensor(gguf_name, np.ascontiguousarray(weights))
        else:
            writer.add_tensor(gguf_name, gguf.quantize(weights, kind), raw_dtype=kind)
    if model.config.rope_parameters["rope_type"] == "llama3":
        parameters = model.config.rope_parameters
        divisors = rope.llama3_divisors(
            parameters["rope_theta"], WIDTH // HEADS // 2, parameters["factor"]
        )
        writer.add_tensor(rope.TENSOR, divisors.astype(np.float32))


def _permuted(weights: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp keeps the halves of each rotary head interleaved."""
    rows = weights.shape[0] // heads // 2
    return weights.reshape(heads, 2, rows, -1).swapaxes(1, 2).reshape(weights.shape)


def _random(model: Any) -> Any:
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator) * 0.2
            noise += parameter.dim() == 1  # norms near 1, and biases that matter
            parameter.copy_(noise.to(torch.bfloat16))
    return model.eval()


def _rope(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


def _type(token: str) -> TokenType:
    return TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL
