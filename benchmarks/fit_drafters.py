"""Fits the weights that the drafters' odds begin with, and writes drafters/weights.py.

    python -m benchmarks.fit_drafters [--model NAME] [--epochs N] [--half 0|1] [--dry]

Replays the development edits of one half of the repositories, the reference text playing the
target, and lets the odds go on learning from answer to answer; the weights written are the
mean over the last half of the last epoch. Prints tokens per pass of each epoch, and of the
other half of the repositories, which the weights have not seen.
"""

from __future__ import annotations

import argparse
import random
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import MODEL, edits
from drafters import odds, weights
from drafters.core import Draft, DraftContext
from drafters.standard import StandardDrafter
from engine.chat import Chat
from engine.core import GenerationRequest, Message
from engine.pieces import pieces_of
from engine.store import resolve
from lsp_server.core import RewriteRequest, Span
from lsp_server.prompts import build_prompt

WINDOWS = (16, 48, 48)
"""Drafted rows of a pass, in turn from item to item: the weights serve both."""

RATES = (0.02, 0.01, 0.005)
"""Step of learning in each epoch; the last goes on."""


class Item(NamedTuple):
    """One edit: what a drafter is told, the tokens of the reference, and the repository."""

    context: DraftContext
    reference: list[int]
    repository: str


def load(model: str) -> list[Item]:
    """Return the development edits, tokenised as the engine would."""
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(
        resolve(model, lambda progress: None, lambda: False)
    )
    backend = tokenizer.backend_tokenizer
    backend.normalizer = None
    chat = Chat(tokenizer)
    pieces = pieces_of(backend)

    def tokenize(text: str) -> list[int]:
        return backend.encode(text, add_special_tokens=False).ids

    items = []
    for edit in edits():
        span = Span(0, len(edit["before"]))
        prompt = build_prompt(
            RewriteRequest(edit["before"], span, edit["language"], edit["instruction"])
        )
        messages = tuple(Message(m["role"], m["content"]) for m in prompt.messages)
        request = GenerationRequest(model, messages, continue_final_message=True)
        source = chat.encode_source(prompt.source, prompt.stop[0]).tokens
        context = DraftContext(
            chat.encode_prompt(request), source, edit["instruction"], pieces, tokenize
        )
        end = tokenizer.eos_token_id
        reference = [*chat.encode_source(edit["after"], prompt.stop[0]).tokens, end]
        items.append(Item(context, reference, edit["source"]["repo"]))
    return items


def accepted(draft: Draft, reference: Sequence[int], start: int) -> int:
    """Return how many drafted tokens the reference accepts from `start` on."""
    parents = draft.parents or range(-1, len(draft.tokens) - 1)
    children = {
        (parent, token): index
        for index, (parent, token) in enumerate(zip(parents, draft.tokens, strict=True))
    }
    node, count = -1, 0
    while start + count < len(reference) - 1:
        node = children.get((node, reference[start + count]), -2)
        if node < -1:
            break
        count += 1
    return count


def replay(drafter: StandardDrafter, item: Item, window: int) -> int:
    """Return the passes that the item takes."""
    drafter.begin(item.context)
    start = passes = 0
    while start < len(item.reference):
        count = accepted(drafter.propose(window), item.reference, start)
        end = start + count
        drafter.observe(item.reference[start:end], item.reference[end])
        start = end + 1
        passes += 1
    return passes


def fit(items: list[Item], epochs: int) -> list[float]:
    """Return fitted weights; print tokens per pass of each epoch."""
    current = list(weights.WEIGHTS)
    for epoch in range(epochs):
        random.Random(epoch).shuffle(items)
        odds.RATE = RATES[min(epoch, len(RATES) - 1)]
        total, kept, tokens, passes = [0.0] * len(current), 0, 0, 0
        for number, item in enumerate(items):
            drafter = StandardDrafter(True, current)
            passes += replay(drafter, item, WINDOWS[number % len(WINDOWS)])
            tokens += len(item.reference)
            current = drafter.odds.at_root + drafter.odds.inside
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
    options = parser.parse_args()
    items = load(options.model)
    repositories = sorted({item.repository for item in items})
    random.Random(7).shuffle(repositories)
    chosen = set(repositories[options.half :: 2])
    rate = odds.RATE
    fitted = fit([item for item in items if item.repository in chosen], options.epochs)
    odds.RATE = rate
    for window in sorted(set(WINDOWS)):
        tokens = passes = 0
        for item in items:
            if item.repository not in chosen:
                tokens += len(item.reference)
                passes += replay(StandardDrafter(True, fitted), item, window)
        print(f"other half, {window} rows: {tokens / passes:.2f} tokens per pass", flush=True)
    if not options.dry:
        Path(weights.__file__).write_text(written(fitted), "utf-8")


if __name__ == "__main__":
    main()
