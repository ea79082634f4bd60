"""Pure functions on logits, `[rows, vocabulary]` or one row `[vocabulary]`.

The order is that of the field (transformers, vLLM): repetition penalty, bias, bans, then
temperature, then top-k, top-p and min-p on what is left.
"""

from __future__ import annotations

import torch

from engine.sampling.settings import Sampling

COLDEST = 1e-30
"""Temperatures above 0 and below this count as this."""

NEVER = float("-inf")


def processed(row: torch.Tensor, seen: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return one row of logits, float32, after penalty, bias and bans.

    Args:
        row: `[vocabulary]`.
        seen: int64 `[n]`, the different token ids of the prompt and the answer so far; asked
            only for a penalty.
        sampling: the settings.
    """
    row = row.float()
    if sampling.repetition_penalty != 1.0:
        row = penalised(row, seen, sampling.repetition_penalty)
    if sampling.logit_bias:
        tokens, added = zip(*sampling.logit_bias, strict=True)
        row = row.index_add(
            0, torch.tensor(tokens, device=row.device), torch.tensor(added, device=row.device)
        )
    if sampling.banned:
        row = row.index_fill(0, torch.tensor(sorted(sampling.banned), device=row.device), NEVER)
    return row


def penalised(row: torch.Tensor, seen: torch.Tensor, penalty: float) -> torch.Tensor:
    """Return a row with every token seen before made less likely (Keskar et al. 2019).

    Ids of `seen`, int64 `[n]` and all different, that the row does not have are left out.
    """
    tokens = seen[seen < row.shape[-1]].to(row.device)
    old = row[tokens]
    return row.index_copy(0, tokens, torch.where(old > 0, old / penalty, old * penalty))


def log_probabilities(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Return log p after temperature, top-k, top-p and min-p, float32, -inf where dropped."""
    logits = logits.float()
    # From the largest down, and never by less than float32 can tell from 0: a tiny
    # temperature then means greedy, where infinity less infinity would mean nothing.
    logits = logits - logits.amax(dim=-1, keepdim=True)
    scores = logits / max(sampling.temperature, COLDEST)
    scores = keep_top_k(scores, sampling.top_k)
    scores = keep_top_p(scores, sampling.top_p)
    scores = keep_min_p(scores, sampling.min_p)
    return torch.log_softmax(scores, dim=-1)


def keep_top_k(scores: torch.Tensor, k: int) -> torch.Tensor:
    """Drop all but the `k` largest (and what equals the last of them); 0 keeps all."""
    if k <= 0 or k >= scores.shape[-1]:
        return scores
    last = scores.topk(k, dim=-1).values[..., -1:]
    return scores.masked_fill(scores < last, NEVER)


def keep_top_p(scores: torch.Tensor, p: float) -> torch.Tensor:
    """Keep the smallest set that holds the share `p` of probability (Holtzman et al. 2020)."""
    if p >= 1.0:
        return scores
    shares = torch.softmax(scores, dim=-1)
    # What is below this share adds up to less than 1 - p, so it can't be in the set: only
    # the few tokens above it have to be sorted.
    least = (1.0 - p) / scores.shape[-1]
    candidates = int((shares >= least).sum(dim=-1).max())
    ordered, order = shares.topk(max(candidates, 1), dim=-1)
    # A token stays while the mass before it is below p, so the first always stays.
    stays = ordered.cumsum(dim=-1) - ordered < p
    stays[..., 0] = True
    dropped = torch.ones_like(scores, dtype=torch.bool).scatter(-1, order, ~stays)
    return scores.masked_fill(dropped, NEVER)


def keep_min_p(scores: torch.Tensor, share: float) -> torch.Tensor:
    """Drop what is less probable than `share` of the most probable (Nguyen et al. 2024)."""
    if share <= 0.0:
        return scores
    p = torch.softmax(scores, dim=-1)
    return scores.masked_fill(p < share * p.amax(dim=-1, keepdim=True), NEVER)
