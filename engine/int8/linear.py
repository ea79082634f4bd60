"""Linear layers in int8: weights with a scale for each output channel, activations with a
scale for each row.

Integer sums are exact in any order and the scale of a row depends on that row alone, so a
row's result is the same in a pass of one row and in a pass of sixteen. The matrix product
is torch's own FBGEMM kernel, whose cost grows slowly with the number of rows.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch

from engine.int8.unpacked import unpacked_product

# torch deprecates tensors of quantised dtypes, but its kernels take no others.
warnings.filterwarnings("ignore", r"torch\.quantize_per_tensor", UserWarning)

GRID = 127
"""Activations are rounded to -127..127, stored as 1..255."""

ZERO_POINT = 128

WEIGHT_GRID = 64
"""Weights are rounded to -64..64. Without VNNI the kernel adds pairs of products in 16 bits:
2 * 255 * 64 still fits, and with 127 large pairs would be cut off."""


LARGE_ROWS, PART_ROWS = 32768, 8192


class ScaledRows(NamedTuple):
    """Rows, each divided by its largest value, ready for any number of linears.

    Attributes:
        rows: float32 `[..., in]`, from -1 to 1.
        scale: float32 `[..., 1]`; the row stands for `rows * scale`.
    """

    rows: torch.Tensor
    scale: torch.Tensor


def scaled_rows(x: torch.Tensor) -> ScaledRows:
    """Divide every row of float32 `[..., in]` by its largest absolute value."""
    # A row of zeros has no largest value; any scale will do for it.
    scale = x.abs().amax(dim=-1, keepdim=True).clamp_min_(1e-20)
    return ScaledRows(x / scale, scale)


class Weight:
    """An int8 weight, which another thread may pack while products are asked for.

    Args:
        int8: `[out, in]`; let go of once it is packed.
        scale: float32 `[out]`; the weight stands for `int8 * scale[:, None]`.
    """

    def __init__(self, int8: torch.Tensor, scale: torch.Tensor) -> None:
        self.out_features, self.in_features = int8.shape
        self._unpacked: tuple[torch.Tensor, torch.Tensor] | None = (int8, scale)
        self._packed: list[Any] = []

    def pack(self) -> None:
        """Bring the weight into the kernel's layout; done once."""
        if self._unpacked is None:
            return
        int8, scale = self._unpacked
        rows = rows_a_part(int8)
        parts = zip(int8.split(rows), scale.split(rows), strict=True)
        self._packed = [pack(*part) for part in parts]
        self._unpacked = None

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """Map float32 `[..., in]`, from -1 to 1, to `[..., out]`; the same packed or not."""
        unpacked = self._unpacked  # read once: it may go at any moment
        if unpacked is None:
            parts = [_linear(x, 1.0 / GRID, ZERO_POINT, packed) for packed in self._packed]
            return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        int8, scale = unpacked
        return unpacked_product(on_grid(x), int8, scale * torch.tensor(1.0 / GRID))


class Int8Linear:
    """`y = x W^T + b` with an int8 weight; the bias is float32 `[out]`, or None."""

    def __init__(self, weight: Weight, bias: torch.Tensor | None) -> None:
        self.out_features, self.in_features = weight.out_features, weight.in_features
        self._weight = weight
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """Map float32 `[..., in]` to `[..., out]`."""
        return self.of(scaled_rows(x))

    def of(self, x: ScaledRows) -> torch.Tensor:
        """Map rows that are scaled already to `[..., out]`."""
        y = self._weight.product(x.rows).mul_(x.scale)
        return y if self._bias is None else y.add_(self._bias)


def on_grid(x: torch.Tensor) -> torch.Tensor:
    """Round float32 from -1 to 1 to whole numbers from -127 to 127, as the kernel does."""
    rounded = torch.quantize_per_tensor(x, 1.0 / GRID, ZERO_POINT, torch.quint8)
    return rounded.int_repr().float() - ZERO_POINT


def quantise(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return int8 `[out, in]` and scales `[out]` of a float weight `[out, in]`."""
    weight = weight.float()
    scale = (weight.abs().amax(dim=1) / WEIGHT_GRID).clamp_min_(1e-20)
    int8 = (weight / scale[:, None]).round_().clamp_(-WEIGHT_GRID, WEIGHT_GRID)
    return int8.to(torch.int8), scale


def rows_a_part(weight: torch.Tensor) -> int:
    """Return how many output channels are packed together.

    The packing reads one byte of every channel after another, so that an output layer of
    150,000 channels finds nothing in any cache. In parts it is packed several times
    faster; smaller matrices stay whole, because their passes would take longer.
    """
    return PART_ROWS if weight.shape[0] > LARGE_ROWS else weight.shape[0]


def pack(weight: torch.Tensor, scale: torch.Tensor) -> Any:
    """Return the weight in the kernel's own layout (a copy).

    Args:
        weight: int8 `[out, in]`.
        scale: float32 `[out]`; the weight stands for `weight * scale[:, None]`.
    """
    zero_points = torch.zeros(len(scale), dtype=torch.long)
    quantised = torch._make_per_channel_quantized_tensor(  # type: ignore[attr-defined]
        weight, scale.double(), zero_points, 0
    )
    return torch.ops.quantized.linear_prepack(quantised, None)


def is_supported() -> bool:
    """Return whether this torch has the FBGEMM kernels, and select them."""
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        return False
    torch.backends.quantized.engine = "fbgemm"
    return True


def _linear(x: torch.Tensor, scale: float, zero_point: int, packed: Any) -> torch.Tensor:
    return torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
        x, scale, zero_point, packed
    )
