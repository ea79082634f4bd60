"""Which drafted tokens are accepted, and what the target says itself after them.

Greedy: a drafted token is accepted while it is the target's most probable.

*Coupled* sampling (the default): the noise of a position is keyed by the seed and the
absolute position, and the target's token is argmax(log p + Gumbel noise). A drafted token
is accepted while it equals that choice, so a seeded text is the same with and without
drafts.

*Rejection* sampling (Leviathan et al. 2023; Chen et al. 2023) for drafters that are sure
of their token (q = 1): it is accepted with probability p(token), else the target's token
is sampled from p without it. The distribution is p whatever the draft, and as many drafted
tokens are accepted as can be; but the text depends on the draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from engine.core import EngineError
from engine.sampling.masks import NEVER, log_probabilities, processed
from engine.sampling.noise import coin, gumbel_noise
from engine.sampling.settings import REJECTION, Sampling


class Verdict(NamedTuple):
    """What a pass emits.

    Attributes:
        tokens: the accepted drafted tokens, then the target's own next one.
        accepted: how many of them were drafted.
        margins: for each token, the distance of the two best logits at its row, as they
            were before the temperature; `inf` where there was one token to choose from.
    """

    tokens: list[int]
    accepted: int
    margins: list[float]


def accept(
    logits: torch.Tensor, drafted: Sequence[int], history: Sequence[int], sampling: Sampling
) -> Verdict:
    """Compare a draft with the target's own choices.

    Args:
        logits: `[len(drafted) + 1, vocabulary]`; row i follows drafted token i - 1.
        drafted: the draft.
        history: all tokens before row 0's choice; its length is that choice's position.
        sampling: how tokens are chosen.

    Raises:
        EngineError: bans and bias left nothing to choose.
    """
    if sampling.is_greedy and not sampling.changes_logits:
        return _greedy(logits, drafted)
    tokens: list[int] = []
    margins: list[float] = []
    for row, logit in enumerate(_processed_rows(logits, drafted, history, sampling)):
        margins.append(_margin(logit))
        draft = drafted[row] if row < len(drafted) else None
        tokens.append(_choice(logit, draft, len(history) + row, sampling))
        if tokens[-1] != draft:
            break
    return Verdict(tokens, len(tokens) - 1, margins)


def accepted_length(drafted: Sequence[int], chosen: Sequence[int]) -> int:
    """Return how many first drafted tokens equal the target's own."""
    for count, (token, own) in enumerate(zip(drafted, chosen, strict=False)):
        if token != own:
            return count
    return len(drafted)


def _greedy(logits: torch.Tensor, drafted: Sequence[int]) -> Verdict:
    chosen = logits.argmax(dim=-1).tolist()
    accepted = accepted_length(drafted, chosen)
    if logits.shape[-1] < 2:
        return Verdict(chosen[: accepted + 1], accepted, [float("inf")] * (accepted + 1))
    best = logits[: accepted + 1].float().topk(2, dim=-1).values
    return Verdict(chosen[: accepted + 1], accepted, (best[:, 0] - best[:, 1]).tolist())


def _processed_rows(
    logits: torch.Tensor, drafted: Sequence[int], history: Sequence[int], sampling: Sampling
) -> Iterator[torch.Tensor]:
    """Yield each row after penalty, bias and bans; a row is seen only once those before are."""
    # What a row may not repeat grows with the draft before it, so rows go one by one.
    penalises = sampling.repetition_penalty != 1.0
    known = set(history) if penalises else set()
    seen = torch.tensor(list(known), dtype=torch.long)
    for row in range(logits.shape[0]):
        yield processed(logits[row], seen, sampling)
        if penalises and row < len(drafted) and drafted[row] not in known:
            known.add(drafted[row])
            seen = torch.cat((seen, seen.new_tensor([drafted[row]])))


def _choice(row: torch.Tensor, draft: int | None, position: int, sampling: Sampling) -> int:
    """Return the token emitted at `position`; it equals `draft` where that is accepted."""
    if not torch.isfinite(row.amax()):
        raise EngineError(
            "invalid_request",
            "No token is left to choose: logit_bias and banned_tokens exclude all of them.",
        )
    if sampling.is_greedy:
        return int(row.argmax())
    log_p = log_probabilities(row, sampling)
    if sampling.rule == REJECTION and draft is not None:
        p = float(log_p[draft].exp())
        if coin(sampling.seed, position) < p:
            return draft
        if p > 0.0:
            log_p[draft] = NEVER  # sampled from the rest; its scale does not matter to argmax
            if not torch.isfinite(log_p.amax()):
                return draft  # there is no rest: p rounded to a little less than 1
    noise = gumbel_noise(sampling.seed, position, row.shape[-1]).to(row.device)
    return int((log_p + noise).argmax())


def _margin(row: torch.Tensor) -> float:
    best = row.topk(min(2, row.shape[-1])).values
    return float(best[0] - best[-1]) if best.shape[-1] == 2 else float("inf")
