"""Drafts by an adversary, on the real model: they must not change a token.

    python -m benchmarks.exactness [--model NAME] [--dtype D] [--items N] [--part I/N]
                                   [--tokens N]

For N development edits, spread over the list, the target rewrites alone first; then drafts
of random length, right, wrong and half right, chains and trees, are verified, and every token
is compared.
`--part 2/4` takes the second quarter of them, for a run in pieces. The exit code is 1
where one differs.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.common import MODEL, edits, machine, part, part_of
from drafters.core import Draft, DraftContext
from engine.core import GenerationRequest, Message
from engine.loader import LoadedModel, load_model
from engine.loop import Pass, verify_loop
from engine.sampling import Sampling
from engine.store import resolve
from engine.window import Acceptance, WindowPolicy


class Adversary:
    """Knows the right answer and uses it to mislead."""

    def __init__(self, answer: Sequence[int], vocabulary: int, seed: int) -> None:
        self._answer = answer
        self._vocabulary = vocabulary
        self._random = random.Random(seed)
        self._emitted = 0

    def begin(self, context: DraftContext) -> None:
        """Nothing to prepare."""

    def propose(self, limit: int) -> Draft:
        """Return a draft that is right up to a random place; every other one branches."""
        length = self._random.randint(0, limit)
        if length and self._random.random() < 0.5:
            return self._branching(self._chain(self._random.randint(1, length)), length)
        return self._chain(length)

    def _branching(self, draft: Draft, length: int) -> Draft:
        """Add side branches anywhere, of tokens that are right where they stand or wrong."""
        tokens = list(draft.tokens)
        depths = list(range(len(tokens)))
        parents = list(range(-1, len(tokens) - 1))
        while len(tokens) < length:
            last = len(tokens) - 1
            parent = last if self._random.random() < 0.5 else self._random.randint(-1, last)
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
            right = self._answer[self._emitted + depths[-1] :][:1]
            wrong = self._random.randrange(self._vocabulary)
            tokens.append(right[0] if right and self._random.random() < 0.7 else wrong)
            parents.append(parent)
        return draft._replace(tokens=tokens, parents=parents)

    def _chain(self, length: int) -> Draft:
        right = self._random.choice((0, length, self._random.randint(0, length)))
        tokens = list(self._answer[self._emitted : self._emitted + right])
        tokens += self._random.choices(range(self._vocabulary), k=length - len(tokens))
        return Draft(tokens, "adversary", self._random.random())

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Count what the target emitted."""
        self._emitted += len(accepted) + 1


class WholeDrafts(WindowPolicy):
    """Verifies every draft whole: the adversary chooses the windows, not the cost model."""

    def choose(self, draft: Draft, context: int) -> list[int]:
        """Return all of it."""
        return list(range(len(draft.tokens)))


def passes(
    target: LoadedModel, prompt: list[int], drafter: Adversary | None, tokens: int
) -> Iterator[Pass]:
    """Prefill a fresh cache and yield the passes of an answer."""
    cache = target.runner.new_cache(len(prompt) + tokens)
    for _ in target.runner.prefill(cache, prompt[:-1]):
        pass
    policy = WholeDrafts(target.cost, Acceptance(), target.runner.max_draft)
    yield from verify_loop(target.runner, cache, prompt[-1], drafter, Sampling(), tokens, policy)


def prompt_of(target: LoadedModel, item: dict[str, Any], longest: int) -> list[int]:
    """Return the tokens of a request for the edit, cut to the last `longest`."""
    text = f"{item['before']}\n\n{item['instruction']}\nAnswer with the whole code."
    request = GenerationRequest(target.name, (Message("user", text),))
    return target.chat.encode_prompt(request)[-longest:]


def main(arguments: list[str] | None = None) -> int:
    """Compare item by item; print how many windows were tried and the smallest margin."""
    parser = argparse.ArgumentParser(description="Drafts must not change a token.")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--dtype")
    parser.add_argument("--items", type=int, default=20)
    parser.add_argument("--part", type=part, default=(1, 1), metavar="I/N")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--prompt-tokens", type=int, default=300)
    options = parser.parse_args(arguments)
    print(machine(), flush=True)
    folder = resolve(options.model, lambda progress: None, lambda: False)
    target = load_model(options.model, folder, None, options.dtype)
    items = edits()
    chosen = list(enumerate(items[:: max(len(items) // options.items, 1)][: options.items], 1))
    chosen = part_of(chosen, options.part)
    windows = drafted_tokens = different = 0
    margin = float("inf")
    for number, item in chosen:
        prompt = prompt_of(target, item, options.prompt_tokens)
        plain = [t for p in passes(target, prompt, None, options.tokens) for t in p.tokens]
        adversary = Adversary(plain, target.runner.vocabulary, number)
        drafted: list[int] = []
        for step in passes(target, prompt, adversary, options.tokens):
            windows += 1
            drafted_tokens += len(step.verified)
            margin = min(margin, *step.margins)
            drafted += step.tokens
        different += drafted != plain
        print(
            f"{number} of {options.items}: {'same' if drafted == plain else 'DIFFERENT'}",
            flush=True,
        )
    print(
        f"{target.runner.name} {target.runner.dtype}: {len(chosen) - different} of {len(chosen)} "
        f"items the same over {windows} windows with {drafted_tokens} drafted tokens; "
        f"smallest top-two margin {margin:.4f}"
    )
    return 1 if different else 0


if __name__ == "__main__":
    raise SystemExit(main())
