"""Drafts where nothing can be copied must cost nothing beside plain decoding.

    python -m benchmarks.never_slower [--model NAME] [--runs N] [--tokens N]

Five prompts ask for new functions. Each is answered with drafts and without, in turn, by
the engine's own code in this process; after a run with both that is not counted. Prints
seconds of decoding a token, medians with spread, and the ratio; aim: at most 1.02.
"""

from __future__ import annotations

import argparse
import statistics

from benchmarks.common import MODEL, machine, spread
from engine.core import Finished, GenerationRequest, Generator, Message, TextDelta, never_cancelled

PROMPTS = (
    "Write a Python function that returns the n-th prime number.",
    "Write a Go function that reverses the words of a sentence.",
    "Write a JavaScript function that checks whether brackets are balanced.",
    "Write a Rust function that merges two sorted vectors.",
    "Write a C function that counts the set bits of an integer.",
)
AIM = 1.02


def answer(host: Generator, model: str, prompt: str, draft: bool, tokens: int) -> tuple[str, float]:
    """Return the text and the seconds of decoding a token."""
    request = GenerationRequest(model, (Message("user", prompt),), max_tokens=tokens, draft=draft)
    text = ""
    for event in host.generate(request, never_cancelled):
        if isinstance(event, TextDelta):
            text += event.text
        elif isinstance(event, Finished):
            return text, event.stats.decode_seconds / event.stats.tokens
    raise RuntimeError("the generator ended without a Finished")


def compare(
    host: Generator, model: str, prompt: str, runs: int, tokens: int
) -> tuple[list[float], list[float], bool]:
    """Return seconds a token with drafts and without, of `runs` each, and whether texts agree."""
    times: dict[bool, list[float]] = {True: [], False: []}
    texts: set[str] = set()
    for run in range(runs + 1):
        # Who goes first changes, so that neither always has the warmer machine.
        for draft in (True, False) if run % 2 else (False, True):
            text, seconds = answer(host, model, prompt, draft, tokens)
            texts.add(text)
            if run:
                times[draft].append(seconds)
    return times[True], times[False], len(texts) == 1


def main(arguments: list[str] | None = None, host: Generator | None = None) -> int:
    """Print a line for each prompt and the whole; the exit code says whether texts agree."""
    parser = argparse.ArgumentParser(description="Drafts where nothing can be copied.")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    options = parser.parse_args(arguments)
    if host is None:
        from engine.host import ModelHost

        host = ModelHost(None, None, options.model)
    print(machine(), flush=True)
    ratios, same = [], True
    for prompt in PROMPTS:
        drafted, plain, equal = compare(host, options.model, prompt, options.runs, options.tokens)
        ratios.append(statistics.median(drafted) / statistics.median(plain))
        same &= equal
        shown = [spread([1000 * s for s in times], " ms", 0) for times in (drafted, plain)]
        print(
            f"{prompt} {shown[0]} a token with drafts, {shown[1]} without: "
            f"{ratios[-1]:.3f}{'' if equal else ', TEXTS DIFFER'}",
            flush=True,
        )
    print(
        f"time with drafts / without, median of prompts: {statistics.median(ratios):.3f}, "
        f"worst {max(ratios):.3f} (aim: at most {AIM}); texts equal: {'yes' if same else 'NO'}"
    )
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
