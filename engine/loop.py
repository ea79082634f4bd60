"""The verify loop: draft, verify in one pass, accept, roll back.

The target's own token is known at every row of the pass, and the draft is accepted while
it equals it (Stern et al. 2018); then what is emitted never depends on the draft. The rule
for sampling may be another (engine/sampling/accept.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from drafters.core import NO_DRAFT, Draft, Drafter
from engine.kv_cache import KVCache
from engine.runner import GreedyRunner, Runner
from engine.sampling import Sampling, accept
from engine.sampling.accept import Verdict
from engine.window import WindowPolicy


class Pass(NamedTuple):
    """What one forward pass of the target gave.

    Attributes:
        tokens: the tokens emitted: those accepted, then the target's own next one.
        draft: the draft that was verified, cut to the window.
        accepted: how many of its tokens were accepted.
        margins: for each token, the distance of the two best logits there.
    """

    tokens: list[int]
    draft: Draft
    accepted: int
    margins: list[float]


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
        verdict = _verified(runner, cache, [last_token, *draft.tokens], sampling)
        seconds = time.perf_counter() - started
        tokens, accepted, margins = verdict
        cache.rollback(len(draft.tokens) - accepted)
        last_token = tokens[-1]
        if drafter is not None:
            drafter.observe(tokens[:-1], last_token)
        policy.observe(draft, accepted, context, seconds)
        limit -= len(tokens)
        yield Pass(tokens, draft, accepted, margins)


def _verified(runner: Runner, cache: KVCache, window: list[int], sampling: Sampling) -> Verdict:
    """Run one window; on a device that can, compare there, so that no logits travel."""
    if isinstance(runner, GreedyRunner) and sampling.is_greedy and not sampling.changes_logits:
        return runner.verify_greedy(cache, window)
    history = [*cache.tokens, window[0]]
    return accept(runner.verify(cache, window), window[1:], history, sampling)


def _next_draft(drafter: Drafter | None, policy: WindowPolicy, room: int, context: int) -> Draft:
    if drafter is None or room < 1 or policy.longest < 1:
        return NO_DRAFT
    draft = drafter.propose(min(policy.longest, room))
    return draft._replace(tokens=list(draft.tokens[: policy.cut(draft, context)]))
