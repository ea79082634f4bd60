"""Puts a transformers model together from int8 linears and float32 for the rest."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM

from engine.attention import NAME, row_invariant_attention
from engine.core import EngineError, IsCancelled, OnProgress
from engine.int8.linear import Int8Linear, is_supported
from engine.int8.weights import ensure_int8, read_shapes, read_tensors
from engine.layers import has_common_shape

AttentionInterface.register(NAME, row_invariant_attention)
# Each row's limit follows from its place, so no mask has to be made.
AttentionMaskInterface.register(NAME, lambda *args, **kwargs: None)


class HalfEmbedding(nn.Module):
    """A bfloat16 table, mapped from the file, whose rows come out as float32."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.table = weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Map ids `[...]` to float32 `[..., size]`."""
        return nn.functional.embedding(ids, self.table).float()


def can_run_int8(config: Any) -> bool:
    """Return whether the model of `config` runs in int8 on this machine."""
    return has_common_shape(config) and is_supported()


def load_int8_model(
    folder: Path, config: Any, on_progress: OnProgress, is_cancelled: IsCancelled
) -> Any:
    """Return the model in `folder` with int8 linears, on the CPU.

    Raises:
        EngineError: `disk_full`; `unsupported_model` when the weights do not fit the config.
        Cancelled: `is_cancelled` answered True.
    """
    with init_empty_weights(include_buffers=False):
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.float32, attn_implementation=NAME, trust_remote_code=False
        )
    linears = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
    embedding = _name_of(model, model.get_input_embeddings())
    head = _name_of(model, model.get_output_embeddings())
    # A tied head is not stored; it reads the embedding's weight.
    tied = bool(config.tie_word_embeddings)
    stored = {name: f"{embedding if tied and name == head else name}.weight" for name in linears}
    expected = {n: list(t.shape) for n, t in model.state_dict().items()}
    if tied:
        expected.pop(f"{head}.weight", None)
    _check_shapes(folder, expected)
    int8 = dict(read_tensors(ensure_int8(folder, list(stored.values()), on_progress, is_cancelled)))
    floats = {n: t for n, t in read_tensors(folder) if n not in int8 or n == f"{embedding}.weight"}
    for name in expected.keys() & floats.keys():
        _assign(model, name, floats[name], as_table=name == f"{embedding}.weight")

    def packed(name: str) -> Int8Linear:
        weight = stored[name]
        bias = floats[f"{name}.bias"] if f"{name}.bias" in expected else None
        return Int8Linear(
            int8[weight], int8[f"{weight}.scale"], None if bias is None else bias.float()
        )

    # Packing is most of the time of a load and runs on one core a matrix: the largest
    # first, so that no core waits for the output layer at the end.
    largest_first = sorted(linears, key=lambda name: -int8[stored[name]].numel())
    with ThreadPoolExecutor(max_workers=torch.get_num_threads()) as pool:
        for name, linear in zip(largest_first, pool.map(packed, largest_first), strict=True):
            _replace(model, name, linear)
    return model.eval()


def _check_shapes(folder: Path, expected: Mapping[str, list[int]]) -> None:
    """Raise EngineError unless the folder has every weight, in its shape."""
    found = dict(read_shapes(folder))
    for name, shape in expected.items():
        if found.get(name) != shape:
            has = f"has the shape {found[name]}" if name in found else "is missing"
            raise EngineError(
                "unsupported_model",
                f"The weights in {folder} do not fit its config.json: {name} {has}, "
                f"where {shape} is needed; fetch the model anew.",
            )


def _assign(model: nn.Module, name: str, tensor: torch.Tensor, as_table: bool) -> None:
    path, _, attribute = name.rpartition(".")
    if as_table:
        _replace(model, path, HalfEmbedding(tensor))
        return
    module = model.get_submodule(path)
    if isinstance(module, nn.Linear):
        return  # its bias goes into the Int8Linear
    setattr(module, attribute, nn.Parameter(tensor.float(), requires_grad=False))


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    path, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(path), attribute, module)


def _name_of(model: nn.Module, wanted: Any) -> str:
    return next(name for name, module in model.named_modules() if module is wanted)
