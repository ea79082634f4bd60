"""Drafts where nothing can be copied must cost nothing beside plain decoding.

    python -m benchmarks.never_slower [--model NAME] [--runs N] [--tokens N] [--part I/N]
                                      [--check] [--json]

The prompts ask for new functions. Each is answered with drafts and without, beside each
other in short stretches (benchmarks/side_by_side.py), by the engine's own code in this
process. Prints for each prompt the median over the runs of seconds a token with drafts /
without (aim: at most 1.02), with the ratio of the first run, when least was learnt, apart;
and where the difference comes from: passes, rows, time in the drafters. `--check` makes
the exit code 1 where a prompt's median is over the aim; where texts differ it always is.
`--part 2/4` takes the second quarter of the prompts, for a run in pieces.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from benchmarks.common import MODEL, Report, part, part_of, spread, verdict
from benchmarks.side_by_side import Answer, Pair, answer_both
from engine.core import Generator

PROMPTS = (
    "Write a Python function that returns the n-th prime number.",
    "Write a Go function that reverses the words of a sentence.",
    "Write a JavaScript function that checks whether brackets are balanced.",
    "Write a Rust function that merges two sorted vectors.",
    "Write a C function that counts the set bits of an integer.",
    "Write a Java method that finds the longest common prefix of some strings.",
    "Write a TypeScript function that groups objects by a key.",
    "Write a Python function that parses a date such as 2024-05-17.",
)
AIM = 1.02


def main(arguments: list[str] | None = None, host: Generator | None = None) -> int:
    """Print a line for each prompt and the whole; return the exit code."""
    parser = argparse.ArgumentParser(description="Drafts where nothing can be copied.")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--part", type=part, default=(1, 1), metavar="I/N")
    parser.add_argument("--check", action="store_true", help="exit code 1 where it is slower")
    Report.add_option(parser)
    options = parser.parse_args(arguments)
    if host is None:
        from engine.host import ModelHost

        host = ModelHost(None, None, options.model)
    report = Report(options)
    medians, same = [], True
    for prompt in part_of(PROMPTS, options.part):
        # The first one counts apart: it may load the model, and least is learnt then.
        first, *pairs = (
            answer_both(host, options.model, prompt, options.tokens, plain_first=bool(run % 2))
            for run in range(options.runs + 1)
        )
        ratios = [pair.ratio for pair in pairs]
        medians.append(statistics.median(ratios))
        equal = len({answer.text for pair in (first, *pairs) for answer in pair}) == 1
        same &= equal
        report.say(
            f"{prompt} {spread(ratios, digits=3)}, first run {first.ratio:.3f}"
            f"{'' if equal else ', TEXTS DIFFER'}"
        )
        for line in explained(pairs):
            report.say(f"  {line}")
        report.figure(prompt, {"ratios": ratios, "first_ratio": first.ratio, "texts_equal": equal})
    worst = max(medians)
    report.say(
        f"seconds a token with drafts / without: median of prompts {statistics.median(medians):.3f}"
        f", worst {worst:.3f}; {verdict(worst <= AIM, f'at most {AIM}')}; "
        f"texts equal: {'yes' if same else 'NO'}"
    )
    report.figures({"medians": medians, "worst": worst, "aim": AIM, "texts_equal": same})
    report.close()
    return 1 if not same or (options.check and worst > AIM) else 0


def explained(pairs: Sequence[Pair]) -> list[str]:
    """Return where the time of both kinds goes, a line each."""
    kinds = {
        "with drafts": [pair.drafted for pair in pairs],
        "without": [pair.plain for pair in pairs],
    }
    return [f"{name}: {_account(answers)}" for name, answers in kinds.items()]


def _account(answers: Sequence[Answer]) -> str:
    passes = [one for answer in answers for one in answer.passes]
    tokens = sum(answer.tokens for answer in answers)
    drafters = sum(answer.drafter_seconds for answer in answers)
    said = f"{tokens} tokens; drafters {1000 * drafters / tokens:.2f} ms a token; passes: "
    said += ", ".join(
        f"{len(seen)} of {rows} rows ({1000 * statistics.median(p.seconds for p in seen):.0f} ms)"
        for rows in sorted({p.rows for p in passes})
        if (seen := [p for p in passes if p.rows == rows])
    )
    single = [p.seconds for p in passes if p.rows == 1]
    longer = [p for p in passes if p.rows > 1]
    if single and longer:
        # What the tokens of longer passes would have taken one by one, less what they took.
        gained = sum((p.accepted + 1) * statistics.median(single) - p.seconds for p in longer)
        said += (
            f"; {sum(p.accepted for p in longer)} of {sum(p.rows - 1 for p in longer)} drafted "
            f"tokens right, which gained {1000 * gained / tokens:.1f} ms a token"
        )
    return said


if __name__ == "__main__":
    raise SystemExit(main())
