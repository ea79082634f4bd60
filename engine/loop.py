"""The verify loop: draft, verify in one pass, accept, roll back.

Greedy or coupled sampling (engine/sampling.py): the target's own token is known at every
row of the pass, and the draft is accepted while it equals it (Stern et al. 2018; Leviathan
et al. 2023, for a drafter that copies). What is emitted never depends on the draft.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from drafters.core import NO_DRAFT, Draft, Drafter
from engine.kv_cache import KVCache
from engine.runner import Runner
from engine.sampling import Sampling, choose
from engine.window import WindowPolicy


class Pass(NamedTuple):
    """What one forward pass of the target gave.

    Attributes:
        tokens: the tokens emitted: those accepted, then the target's own next one.
        draft: the draft that was verified, cut to the window.
        accepted: how many of its tokens were accepted.
    """

    tokens: list[int]
    draft: Draft
    accepted: int


def verify_loop(
    runner: Runner,
    cache: KVCache,
    last_token: int,
    drafter: Drafter | None,
    sampling: Sampling,
    limit: int,
    policy: WindowPolicy,
) -> Iterator[Pass]:
    """Yield passes until `limit` tokens are emitted, or the caller stops asking.

    Args:
        runner: runs the target.
        cache: holds the prompt without its last token.
        last_token: the prompt's last token; it opens the first window, so that the first
            pass already verifies a draft.
        drafter: begun with the prompt, or None for plain decoding.
        sampling: how the target chooses.
        limit: most tokens to emit; no draft reaches beyond it, so that no position is
            ever outside the model's window.
        policy: how much of each draft to verify.
    """
    while limit > 0:
        context = cache.length
        draft = _next_draft(drafter, policy, limit - 1, context)
        started = time.perf_counter()
        logits = runner.verify(cache, [last_token, *draft.tokens])
        chosen = choose(logits, cache.length - len(draft.tokens), sampling)
        accepted = accepted_length(draft.tokens, chosen)
        seconds = time.perf_counter() - started
        cache.rollback(len(draft.tokens) - accepted)
        emitted = chosen[: accepted + 1]
        last_token = emitted[-1]
        if drafter is not None:
            drafter.observe(emitted[:-1], last_token)
        policy.observe(draft, accepted, context, seconds)
        limit -= len(emitted)
        yield Pass(emitted, draft, accepted)


def accepted_length(drafted: Sequence[int], chosen: Sequence[int]) -> int:
    """Return how many first drafted tokens equal the target's own."""
    for count, (token, own) in enumerate(zip(drafted, chosen, strict=False)):
        if token != own:
            return count
    return len(drafted)


def _next_draft(drafter: Drafter | None, policy: WindowPolicy, room: int, context: int) -> Draft:
    if drafter is None or room < 1 or policy.longest < 1:
        return NO_DRAFT
    draft = drafter.propose(min(policy.longest, room))
    return draft._replace(tokens=list(draft.tokens[: policy.cut(draft, context)]))
