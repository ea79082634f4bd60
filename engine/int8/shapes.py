"""The weights of a decoder of the common shape, by name (engine/layers.py)."""

from __future__ import annotations

from typing import Any

EMBEDDING = "model.embed_tokens"
NORM = "model.norm"
HEAD = "lm_head"


def head_size(config: Any) -> int:
    """Return the size of one attention head."""
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def linear_names(config: Any) -> list[str]:
    """Return the names of all linear layers, in the order of a pass."""
    names = []
    for layer in range(config.num_hidden_layers):
        names += [f"{_layer(layer)}.self_attn.{part}_proj" for part in "qkvo"]
        names += [f"{_layer(layer)}.mlp.{part}_proj" for part in ("gate", "up", "down")]
    return [*names, HEAD]


def weight_of(linear: str, config: Any) -> str:
    """Return where the weight of a linear layer is stored; a tied head has none of its own."""
    tied = linear == HEAD and config.tie_word_embeddings
    return f"{EMBEDDING if tied else linear}.weight"


def expected_shapes(config: Any) -> dict[str, list[int]]:
    """Return the name and the shape of every tensor that the model's files must hold."""
    hidden, inner, size = config.hidden_size, config.intermediate_size, head_size(config)
    rows = config.num_attention_heads * size
    kv_rows = config.num_key_value_heads * size
    shapes = {f"{EMBEDDING}.weight": [config.vocab_size, hidden], f"{NORM}.weight": [hidden]}
    if not config.tie_word_embeddings:
        shapes[f"{HEAD}.weight"] = [config.vocab_size, hidden]
    linears = {
        "self_attn.q_proj": [rows, hidden],
        "self_attn.k_proj": [kv_rows, hidden],
        "self_attn.v_proj": [kv_rows, hidden],
        "self_attn.o_proj": [hidden, rows],
        "mlp.gate_proj": [inner, hidden],
        "mlp.up_proj": [inner, hidden],
        "mlp.down_proj": [hidden, inner],
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if config.model_type == "qwen3":
        norms |= {"self_attn.q_norm": size, "self_attn.k_norm": size}
    for layer in range(config.num_hidden_layers):
        for name, shape in linears.items():
            shapes[f"{_layer(layer)}.{name}.weight"] = shape
            if _has_bias(name, config):
                shapes[f"{_layer(layer)}.{name}.bias"] = shape[:1]
        for name, length in norms.items():
            shapes[f"{_layer(layer)}.{name}.weight"] = [length]
    return shapes


def _layer(number: int) -> str:
    return f"model.layers.{number}"


def _has_bias(name: str, config: Any) -> bool:
    if config.model_type == "qwen2":
        return name[-6:] in ("q_proj", "k_proj", "v_proj")
    part = "attention_bias" if name.startswith("self_attn") else "mlp_bias"
    # Mistral's config knows neither word, Qwen3's only the first.
    return config.model_type in ("llama", "qwen3") and bool(getattr(config, part, False))
