"""Noise that is keyed by seed and position, the same on every device and in every run."""

from __future__ import annotations

import torch

ACCEPTANCE = 0x5D1F
"""Keeps the coin of a drafted token apart from the noise of the choice at its position."""


def gumbel_noise(seed: int, position: int, size: int) -> torch.Tensor:
    """Return the noise of one position, float32 `[size]`.

    argmax(log p + Gumbel noise) is a sample of p (Gumbel 1954; Maddison et al. 2014).
    """
    uniform = torch.rand(size, generator=_generator(seed, position), dtype=torch.float64)
    return -torch.log(-torch.log(uniform.clamp_(min=1e-300))).float()


def coin(seed: int, position: int) -> float:
    """Return a number from 0 to 1, 1 excluded, for the drafted token at `position`."""
    generator = _generator(seed ^ ACCEPTANCE, position)
    return float(torch.rand(1, generator=generator, dtype=torch.float64))


def _generator(seed: int, position: int) -> torch.Generator:
    return torch.Generator().manual_seed(_mix(seed, position))


def _mix(seed: int, position: int) -> int:
    """Mix two integers into 63 bits (the finaliser of SplitMix64, Steele et al. 2014)."""
    mask = (1 << 64) - 1
    z = (seed * 0x9E3779B97F4A7C15 + position + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) >> 1
