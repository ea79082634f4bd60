"""Fits the weights that the drafters' odds begin with, and writes drafters/weights.py.

    python -m benchmarks.fit_drafters [--model NAME] [--epochs N] [--half 0|1] [--dry]
        [--workspace]

Replays the development edits of one half of the repositories, the reference text playing the
target, and lets the odds go on learning from answer to answer; the weights written are the
mean over the last half of the last epoch. With `--workspace` the answers are drafted with the
workspace's other files (benchmarks/replay/neighbours.py), and only the weights of what these
say are fitted: without them nothing changes. Prints tokens per pass of each epoch, and of the
other half of the repositories, which the weights have not seen.
"""

from __future__ import annotations

import argparse
import random
import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import MODEL, edits
from benchmarks.replay.items import Item, items_of, load_tokens
from benchmarks.replay.measure import replay
from drafters import odds, weights
from drafters.standard import StandardDrafter

WINDOWS = (16, 48, 48)
"""Drafted rows of a pass, in turn from item to item: the weights serve both."""

RATES = (0.02, 0.01, 0.005)
"""Step of learning in each epoch; the last goes on."""


def fit(items: list[Item], epochs: int, workspace: bool) -> list[float]:
    """Return fitted weights; print tokens per pass of each epoch."""
    current = list(weights.WEIGHTS)
    kept_as_is = [
        place
        for place in range(len(current))
        if workspace and place % odds.SIZE not in odds.WORKSPACE
    ]
    for epoch in range(epochs):
        random.Random(epoch).shuffle(items)
        odds.RATE = RATES[min(epoch, len(RATES) - 1)]
        total, kept, tokens, passes = [0.0] * len(current), 0, 0, 0
        for number, item in enumerate(items):
            drafter = StandardDrafter(True, current)
            passes += replay(drafter, item, WINDOWS[number % len(WINDOWS)]).passes
            tokens += len(item.reference)
            current = drafter.odds.at_root + drafter.odds.inside
            for place in kept_as_is:
                current[place] = weights.WEIGHTS[place]
            if number >= len(items) // 2:
                total = [a + b for a, b in zip(total, current, strict=True)]
                kept += 1
        current = [value / kept for value in total]
        print(f"epoch {epoch + 1}: {tokens / passes:.2f} tokens per pass", flush=True)
    return current


def written(values: Sequence[float]) -> str:
    """Return the text of drafters/weights.py."""
    lines = textwrap.wrap(", ".join(f"{value:.2f}" for value in values), 92)
    body = "\n".join(f"    {line}" for line in lines)
    head = Path(weights.__file__).read_text("utf-8").partition("WEIGHTS")[0]
    return f"{head}WEIGHTS: tuple[float, ...] = (\n{body},\n)\n"


def main() -> None:
    """Fit on one half of the repositories, check on the other, write the weights."""
    parser = argparse.ArgumentParser(description="Fit the weights of the drafters' odds.")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--half", type=int, choices=(0, 1), default=0)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    parser.add_argument("--workspace", action="store_true", help="fit only its weights")
    options = parser.parse_args()
    read = edits()
    items = list(items_of(read, load_tokens(options.model)))
    if options.workspace:
        items = [item.in_workspace() for item in items]
    home = {edit["id"]: edit["source"]["repo"] for edit in read}
    repositories = sorted(set(home.values()))
    random.Random(7).shuffle(repositories)
    chosen = set(repositories[options.half :: 2])
    rate = odds.RATE
    fitted = fit(
        [item for item in items if home[item.id] in chosen], options.epochs, options.workspace
    )
    odds.RATE = rate
    for window in sorted(set(WINDOWS)):
        tokens = passes = 0
        for item in items:
            if home[item.id] not in chosen:
                tokens += len(item.reference)
                passes += replay(StandardDrafter(True, fitted), item, window).passes
        print(f"other half, {window} rows: {tokens / passes:.2f} tokens per pass", flush=True)
    if not options.dry:
        Path(weights.__file__).write_text(written(fitted), "utf-8")


if __name__ == "__main__":
    main()
