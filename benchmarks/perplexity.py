"""What int8 loses: perplexity beside float32 with the same unpacked weights.

    python -m benchmarks.perplexity [--model NAME] [--files N] [--tokens N] [--json]

Reads the first tokens of N files of the development edits, spread over the list, through
the engine's runners, one model after the other. Aim: within 4%.
"""

from __future__ import annotations

import argparse
import gc
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from benchmarks.common import MODEL, Report, edits, verdict
from engine.loader import LoadedModel, load_model
from engine.runner import Runner
from engine.store import resolve

WINDOW = 128
"""Rows of a pass; float32 is several times faster in long ones, and int8 does not care."""

AIM = 1.04


class Reading(NamedTuple):
    """What a model thought of the files.

    Attributes:
        loss: negative log-likelihood, summed over all tokens, in nats.
        best: the most probable token at every place.
    """

    loss: float
    best: list[int]

    @property
    def perplexity(self) -> float:
        """Exp of the mean loss."""
        return math.exp(self.loss / len(self.best))


def chosen_files(count: int) -> list[str]:
    """Return the old texts of `count` edits, evenly spread over the list."""
    items: list[dict[str, Any]] = [item for item in edits() if len(item["before"]) > 400]
    step = max(len(items) // count, 1)
    return [item["before"] for item in items[::step][:count]]


def read_files(
    name: str, runner: Runner, files: list[list[int]], say: Callable[[str], None]
) -> Reading:
    """Run every file through `runner` in windows; say how far it is."""
    loss, best = 0.0, []
    for number, tokens in enumerate(files, 1):
        # Nothing is drafted here, so passes need not be exact.
        cache = runner.new_cache(len(tokens), exact=False)
        for start in range(0, len(tokens) - 1, WINDOW):
            window = tokens[start : min(start + WINDOW, len(tokens) - 1)]
            log_p = torch.log_softmax(runner.verify(cache, window).float(), dim=-1)
            following = torch.tensor(tokens[start + 1 : start + 1 + len(window)])
            loss -= float(log_p.gather(1, following[:, None]).sum())
            best += log_p.argmax(dim=-1).tolist()
        say(f"{name}: {number} of {len(files)} files")
    return Reading(loss, best)


def main(arguments: list[str] | None = None) -> None:
    """Print both perplexities, their ratio and how often the best token is the same."""
    parser = argparse.ArgumentParser(description="What int8 loses.")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=300, help="of each file, at most")
    Report.add_option(parser)
    options = parser.parse_args(arguments)
    report = Report(options)
    folder = resolve(options.model, lambda progress: None, lambda: False)

    def read(dtype: str) -> Reading:
        model: LoadedModel = load_model(options.model, folder, "cpu", dtype)
        texts = chosen_files(options.files)
        files = [model.tokenizer.encode(text).ids[: options.tokens] for text in texts]
        return read_files(dtype, model.runner, files, report.say)

    ours = read("int8")
    gc.collect()
    plain = read("float32")
    ratio = ours.perplexity / plain.perplexity
    same = sum(a == b for a, b in zip(ours.best, plain.best, strict=True)) / len(plain.best)
    report.say(
        f"perplexity over {len(plain.best)} tokens of {options.files} files: "
        f"int8 {ours.perplexity:.4f}, float32 {plain.perplexity:.4f}, ratio {ratio:.4f}; "
        f"{verdict(ratio <= AIM, f'at most {AIM}')}; best token the same at {same:.1%}"
    )
    report.figures(
        {
            "tokens": len(plain.best),
            "int8_perplexity": ours.perplexity,
            "float32_perplexity": plain.perplexity,
            "ratio": ratio,
            "aim": AIM,
            "best_token_same": same,
        }
    )
    report.close()


if __name__ == "__main__":
    main()
