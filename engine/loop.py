"""The verify loop: draft, verify in one pass, accept, roll back.

The target's own token is known at every row of the pass, and the draft is accepted while
it equals it (Stern et al. 2018); then what is emitted never depends on the draft. The rule
for sampling may be another (engine/sampling/accept.py). A draft may be a tree
(engine/tree.py): then one path through it is accepted, and the others are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from drafters.core import NO_DRAFT, Draft, Drafter, chain
from engine.kv_cache import KVCache
from engine.runner import GreedyRunner, Runner
from engine.sampling import Sampling, accept
from engine.sampling.accept import Verdict
from engine.tree import taken
from engine.window import WindowPolicy


class Pass(NamedTuple):
    """What one forward pass of the target gave.

    Attributes:
        tokens: the tokens emitted: those accepted, then the target's own next one.
        draft: as it was proposed.
        verified: indices of the drafted tokens that were verified.
        path: indices of those that were accepted.
        margins: for each token, the distance of the two best logits there.
    """

    tokens: list[int]
    draft: Draft
    verified: list[int]
    path: list[int]
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
        draft, verified = _next_draft(runner, drafter, policy, limit - 1, context)
        drafted, parents = [draft.tokens[i] for i in verified], taken(draft.parents, verified)
        started = time.perf_counter()
        window = [last_token, *drafted]
        tokens, _, margins, path = _verified(runner, cache, window, parents, sampling)
        cache.keep([0, *(node + 1 for node in path)], context)
        seconds = time.perf_counter() - started
        path = [verified[node] for node in path]
        last_token = tokens[-1]
        if drafter is not None:
            drafter.observe(tokens[:-1], last_token)
        policy.observe(draft, verified, path, last_token, context, seconds)
        limit -= len(tokens)
        yield Pass(tokens, draft, verified, path, margins)


def _verified(
    runner: Runner,
    cache: KVCache,
    window: list[int],
    parents: list[int],
    sampling: Sampling,
) -> Verdict:
    """Run one window; on a device that can, compare there, so that no logits travel."""
    greedy = sampling.is_greedy and not sampling.changes_logits
    if greedy and isinstance(runner, GreedyRunner):
        return runner.verify_greedy(cache, window, parents)
    history = [*cache.tokens, window[0]]
    logits = runner.verify(cache, window, parents)
    return accept(logits, window[1:], history, sampling, parents)


def _next_draft(
    runner: Runner, drafter: Drafter | None, policy: WindowPolicy, room: int, context: int
) -> tuple[Draft, list[int]]:
    """Return a draft and which of its tokens to verify."""
    if drafter is None or room < 1 or policy.longest < 1:
        return NO_DRAFT, []
    draft = drafter.propose(min(policy.longest, room))
    if draft.parents and not runner.trees:
        draft = chain(draft)
    return draft, policy.choose(draft, context)
