"""The position scaling of Llama 3.1 and later, which a GGUF file keeps as a tensor.

llama.cpp stores one divisor for each frequency (`rope_freqs.weight`); transformers computes
the same from a factor and three constants, and its GGUF tables drop them. All models of that
family share the constants, so the factor is the largest divisor, and the result is checked
against the tensor.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from engine.gguf_convert.header import Header

TENSOR = "rope_freqs.weight"
_CONSTANTS = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_F32 = 0


def llama3_scaling(header: Header, path: Path, theta: float) -> dict[str, Any] | None:
    """Transformers' `rope_parameters` for the divisors in the file; None without them.

    Raises:
        ValueError: the divisors are not of the Llama 3 kind.
    """
    tensor = next((tensor for tensor in header.tensors if tensor.name == TENSOR), None)
    if tensor is None:
        return None
    if tensor.kind != _F32:
        raise ValueError(f"{TENSOR} is not float32")
    count = tensor.size // 4
    divisors = np.fromfile(path, "<f4", count, offset=tensor.start).astype(np.float64)
    factor = float(divisors.max())
    if not np.allclose(divisors, llama3_divisors(theta, count, factor), rtol=1e-3):
        raise ValueError(f"{TENSOR} is not of the Llama 3 kind")
    return {"rope_type": "llama3", "rope_theta": theta, "factor": factor, **_CONSTANTS}


def llama3_divisors(theta: float, count: int, factor: float) -> np.ndarray:
    """What each of the `count` frequencies is divided by.

    Frequencies with many turns in the original context stay, those with less than one are
    divided by `factor`, and between them the inverse is blended linearly (the description of
    `llama3` in transformers' documentation of RoPE scaling).
    """
    frequencies = theta ** -(np.arange(count) / count)
    turns = _CONSTANTS["original_max_position_embeddings"] * frequencies / (2 * np.pi)
    low, high = _CONSTANTS["low_freq_factor"], _CONSTANTS["high_freq_factor"]
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return 1.0 / (kept + (1.0 - kept) / factor)
