"""The target's own choice at each row of logits, greedy or sampled.

Sampling is *coupled*: the noise of a position is keyed by the seed and the absolute
position, and the target takes argmax(log p + Gumbel noise), which is a sample of p
(Gumbel 1954; Maddison et al. 2014). A draft is accepted while it equals that choice. So
a seeded text is the same with and without drafts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

COLDEST = 1e-30
"""Temperatures above 0 and below this count as this."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen. `temperature` 0 is greedy; `top_p` 1 keeps all."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


def choose(logits: torch.Tensor, first_position: int, sampling: Sampling) -> list[int]:
    """Return the target's token for every row.

    Args:
        logits: `[rows, vocabulary]`.
        first_position: absolute position of the token that row 0 chooses.
        sampling: how.
    """
    if sampling.temperature <= 0.0:
        return logits.argmax(dim=-1).tolist()
    log_p = log_probabilities(logits, sampling)
    noise = torch.stack(
        [
            gumbel_noise(sampling.seed, first_position + row, log_p.shape[-1])
            for row in range(log_p.shape[0])
        ]
    )
    return (log_p + noise.to(log_p.device)).argmax(dim=-1).tolist()


def log_probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return log p after temperature and top-p, `[rows, vocabulary]`, float32."""
    logits = logits.float()
    # From the largest down, and never by less than float32 can tell from 0: a tiny
    # temperature then means greedy, where infinity less infinity would mean nothing.
    logits = logits - logits.amax(dim=-1, keepdim=True)
    log_p = torch.log_softmax(logits / max(sampling.temperature, COLDEST), dim=-1)
    if sampling.top_p >= 1.0:
        return log_p
    ordered, order = log_p.sort(dim=-1, descending=True)
    # A token stays while the mass before it is below top_p, so the first always stays.
    before = ordered.exp().cumsum(dim=-1) - ordered.exp()
    ordered = ordered.masked_fill(before >= sampling.top_p, float("-inf"))
    return torch.full_like(log_p, float("-inf")).scatter(-1, order, ordered)


def gumbel_noise(seed: int, position: int, size: int) -> torch.Tensor:
    """Return the noise of one position, `[size]`, the same on every device and every run."""
    generator = torch.Generator().manual_seed(_mix(seed, position))
    uniform = torch.rand(size, generator=generator, dtype=torch.float64)
    return -torch.log(-torch.log(uniform.clamp_(min=1e-300))).float()


def _mix(seed: int, position: int) -> int:
    """Mix two integers into 63 bits (the finaliser of SplitMix64, Steele et al. 2014)."""
    mask = (1 << 64) - 1
    z = (seed * 0x9E3779B97F4A7C15 + position + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return (z ^ (z >> 31)) >> 1
