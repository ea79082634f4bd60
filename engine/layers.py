"""The way through a decoder of the common shape, a layer at a time.

The modules are those of the transformers model. Because the loop over them is here, a
caller may stop, look for a cancel or serve somebody else between two layers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from engine.kv_cache import KVCache
from engine.tree import Tree

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines of the rotary embedding, each `[1, rows, head_dim]`."""

RunLayer = Callable[[Any, torch.Tensor, Rotation, KVCache], torch.Tensor]
"""Maps hidden states `[1, rows, hidden_size]` through one layer, whose keys and values
it appends to the cache."""

MODEL_TYPES = ("qwen2", "qwen3", "llama", "mistral")
"""Architectures of that shape: every weight matrix is a linear layer, attention is plain."""


ROTARY_TYPES = ("default", "linear", "llama3", "yarn")
"""Kinds of rotary embedding whose angles depend on the position alone. The others change
them with the length of the sequence, so a row's keys would depend on when they were made."""


def has_common_shape(config: Any) -> bool:
    """Return whether a model of `config` can be run by this module, every row seeing all."""
    if config.model_type not in MODEL_TYPES:
        return False
    rope = getattr(config, "rope_parameters", None) or {}
    return rope.get("rope_type", "default") in ROTARY_TYPES and _sees_everything(config)


def hidden_states(
    model: Any,
    cache: KVCache,
    tokens: Sequence[int],
    run_layer: RunLayer,
    tree: Tree | None = None,
) -> Iterator[torch.Tensor]:
    """Run `tokens` behind what the cache holds; yield the hidden states after each layer.

    With `tree` each stands at its depth; that `run_layer` knows of it too is the caller's care.

    `cache.tokens` is left to the caller. Where the iterator is dropped half way, some
    layers hold more than others, and `cache.rollback(0)` brings them back in step.
    """
    decoder = model.model
    # Not held over a yield: the mode belongs to the thread, not to this iterator.
    with torch.inference_mode():
        ids = torch.tensor([list(tokens)], device=usable_device(decoder.norm.weight))
        hidden = decoder.embed_tokens(ids)
        positions = positions_of(len(tokens), cache.length, tree).to(ids.device)
        rotation = decoder.rotary_emb(hidden, positions[None])
    for layer in decoder.layers:
        with torch.inference_mode():
            hidden = run_layer(layer, hidden, rotation, cache)
        yield hidden


def last_hidden_states(
    model: Any,
    cache: KVCache,
    tokens: Sequence[int],
    run_layer: RunLayer,
    tree: Tree | None = None,
) -> torch.Tensor:
    """Run `tokens` through all layers and note them in the cache."""
    (hidden,) = deque(hidden_states(model, cache, tokens, run_layer, tree), maxlen=1)
    cache.tokens.extend(tokens)
    return hidden


def positions_of(rows: int, start: int, tree: Tree | None) -> torch.Tensor:
    """Return the positions of the rows of a pass behind `start` tokens."""
    if tree is None:
        return torch.arange(start, start + rows)
    return start + torch.tensor(tree.depths)


def prefill(
    model: Any, cache: KVCache, tokens: Sequence[int], chunk: int, run_layer: RunLayer
) -> Iterator[float]:
    """Append `tokens` in chunks that end on multiples of `chunk`; yield tokens done so far.

    It yields after every layer of every chunk. Dropped between two of them, it leaves the
    cache as it was before that chunk.
    """
    layers = len(model.model.layers)
    done = 0
    for part in chunks(tokens, cache.length, chunk):
        whole = False
        try:
            for layer, _ in enumerate(hidden_states(model, cache, part, run_layer), 1):
                if layer < layers:
                    yield done + len(part) * layer / layers
            cache.tokens.extend(part)
            whole = True
        finally:
            if not whole:
                cache.rollback(0)
        done += len(part)
        yield done


def usable_device(weight: torch.Tensor) -> torch.device:
    """Return where to make a model's inputs, by one of its weights.

    A weight that was moved out for want of memory is nowhere (`meta`) until it is needed;
    the hooks that bring it back take inputs from anywhere.
    """
    return torch.device("cpu") if weight.device.type == "meta" else weight.device


def chunks(tokens: Sequence[int], start: int, size: int) -> Iterator[Sequence[int]]:
    """Cut `tokens`, the first of which stands at `start`, at multiples of `size`."""
    done = 0
    while done < len(tokens):
        room = size - (start + done) % size
        yield tokens[done : done + room]
        done += room


def _sees_everything(config: Any) -> bool:
    """Return whether every layer attends to all positions before its own."""
    kinds = getattr(config, "layer_types", None)
    if kinds:
        return set(kinds) == {"full_attention"}
    # Mistral has no kinds of layers: one number stands for all of them.
    return getattr(config, "sliding_window", None) is None
