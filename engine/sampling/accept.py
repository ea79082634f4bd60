"""Which drafted tokens are accepted, and what the target says itself after them.

Greedy: a drafted token is accepted while it is the target's most probable.

*Coupled* sampling (the default): the noise of a position is keyed by the seed and the
absolute position, and the target's token is argmax(log p + Gumbel noise). A drafted token
is accepted while it equals that choice, so a seeded text is the same with and without
drafts.

*Rejection* sampling (Leviathan et al. 2023; Chen et al. 2023) for drafters that are sure
of their token (q = 1): it is accepted with probability p(token), else the target's token
is sampled from p without it. The distribution is p whatever the draft, and as many drafted
tokens are accepted as can be; but the text depends on the draft. Where several drafted
tokens follow one, they are tried in turn, each with what the refused ones left of p (Miao
et al. 2024, "SpecInfer"): with one coin, that is the first whose cumulated p is above it.

Over a token tree every rule is a walk from the root: the token emitted at a row is chosen
as it would be without drafts, and the walk goes on at the drafted token that equals it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from engine.core import EngineError
from engine.sampling.masks import NEVER, log_probabilities, processed
from engine.sampling.noise import coin, gumbel_noise
from engine.sampling.settings import REJECTION, Sampling
from engine.tree import children_of


class Verdict(NamedTuple):
    """What a pass emits.

    Attributes:
        tokens: the accepted drafted tokens, then the target's own next one.
        accepted: how many of them were drafted.
        margins: for each token, the distance of the two best logits at its row, as they
            were before the temperature; `inf` where there was one token to choose from.
        path: the accepted ones' indices among the drafted.
    """

    tokens: list[int]
    accepted: int
    margins: list[float]
    path: list[int]


def accept(
    logits: torch.Tensor,
    drafted: Sequence[int],
    history: Sequence[int],
    sampling: Sampling,
    parents: Sequence[int] = (),
) -> Verdict:
    """Compare a draft with the target's own choices.

    Args:
        logits: `[len(drafted) + 1, vocabulary]`; row i follows drafted token i - 1.
        drafted: the draft.
        history: all tokens before row 0's choice; its length is that choice's position.
        sampling: how tokens are chosen.
        parents: as in `drafters.core.Draft`; empty for a chain.

    Raises:
        EngineError: bans and bias left nothing to choose.
    """
    children = children_of(parents, len(drafted))
    if sampling.is_greedy and not sampling.changes_logits:
        return _greedy(logits, drafted, children)
    tokens: list[int] = []
    margins: list[float] = []
    path: list[int] = []
    # What a row may not repeat grows with the draft before it, so rows go one by one.
    penalises = sampling.repetition_penalty != 1.0
    known = set(history) if penalises else set()
    seen = torch.tensor(list(known), dtype=torch.long)
    node: int | None = -1
    while node is not None:
        logit = processed(logits[node + 1], seen, sampling)
        margins.append(_margin(logit))
        following = children[node + 1]
        candidates = [drafted[child] for child in following]
        tokens.append(_choice(logit, candidates, len(history) + len(path), sampling))
        if penalises and tokens[-1] not in known:
            known.add(tokens[-1])
            seen = torch.cat((seen, seen.new_tensor([tokens[-1]])))
        node = _with_token(following, drafted, tokens[-1])
        if node is not None:
            path.append(node)
    return Verdict(tokens, len(path), margins, path)


def greedy_path(
    chosen: Sequence[int], drafted: Sequence[int], children: Sequence[Sequence[int]]
) -> list[int]:
    """Return the drafted tokens' indices on the path that the target says.

    Args:
        chosen: the target's own token at each row.
        drafted: the draft.
        children: the drafted tokens that follow each row.
    """
    path: list[int] = []
    node = _with_token(children[0], drafted, chosen[0])
    while node is not None:
        path.append(node)
        node = _with_token(children[node + 1], drafted, chosen[node + 1])
    return path


def _greedy(
    logits: torch.Tensor, drafted: Sequence[int], children: Sequence[Sequence[int]]
) -> Verdict:
    chosen = logits.argmax(dim=-1).tolist()
    path = greedy_path(chosen, drafted, children)
    rows = [0, *(node + 1 for node in path)]
    tokens = [chosen[row] for row in rows]
    if logits.shape[-1] < 2:
        return Verdict(tokens, len(path), [float("inf")] * len(rows), path)
    first = logits[: len(rows)] if path == list(range(len(path))) else logits[rows]
    best = first.float().topk(2, dim=-1).values
    return Verdict(tokens, len(path), (best[:, 0] - best[:, 1]).tolist(), path)


def _with_token(children: Sequence[int], drafted: Sequence[int], token: int) -> int | None:
    """Return the first of some drafted tokens that equals `token`."""
    for child in children:
        if drafted[child] == token:
            return child
    return None


def _choice(row: torch.Tensor, candidates: Sequence[int], position: int, sampling: Sampling) -> int:
    """Return the token emitted at `position`; it equals one of `candidates` where that is
    accepted.
    """
    if not torch.isfinite(row.amax()):
        raise EngineError(
            "invalid_request",
            "No token is left to choose: logit_bias and banned_tokens exclude all of them.",
        )
    if sampling.is_greedy:
        return int(row.argmax())
    log_p = log_probabilities(row, sampling)
    if sampling.rule == REJECTION and candidates:
        left = coin(sampling.seed, position)
        for draft in dict.fromkeys(candidates):
            p = float(log_p[draft].exp())
            if left < p:
                return draft
            left -= p
            if p > 0.0:
                log_p[draft] = NEVER  # sampled from the rest; its scale does not matter to argmax
                if not torch.isfinite(log_p.amax()):
                    return draft  # there is no rest: p rounded to a little less than 1
    noise = gumbel_noise(sampling.seed, position, row.shape[-1]).to(row.device)
    return int((log_p + noise).argmax())


def _margin(row: torch.Tensor) -> float:
    best = row.topk(min(2, row.shape[-1])).values
    return float(best[0] - best[-1]) if best.shape[-1] == 2 else float("inf")
