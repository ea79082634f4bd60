"""The product of a weight that is not packed yet: bit for bit that of the kernel, but slower.

The kernel sums integers. A float32 sum of integers is exact too, in any order, while it
stays below 2^24; so the columns are taken in blocks that cannot reach it, and the blocks
are summed as integers.
"""

from __future__ import annotations

import torch

COLUMNS = 2048
"""A block: 2048 products of at most 127 * 64 stay below 2^24."""

ROWS = 512
"""Output channels that are turned into float32 at once; they fit into the cache."""


def unpacked_product(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return `x W^T`, float32 `[..., out]`.

    Args:
        x: float32 `[..., in]` of whole numbers from -127 to 127.
        weight: int8 `[out, in]` from -64 to 64.
        scale: float32 `[out]`; factor of each output channel.
    """
    parts = zip(weight.split(ROWS), scale.split(ROWS), strict=True)
    return torch.cat([_sums(x, part).float() * factor for part, factor in parts], dim=-1)


def _sums(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    blocks = zip(x.split(COLUMNS, dim=-1), weight.split(COLUMNS, dim=-1), strict=True)
    first, *others = (block @ part.float().T for block, part in blocks)
    total = first.int()
    for other in others:
        total += other.int()
    return total
