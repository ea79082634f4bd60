"""What a pass of the engine costs here, beside transformers and llama.cpp, in one run.

    python -m benchmarks.device [--model NAME] [--dtype D] [--rounds N] [--tokens N]
                                [--peers | --llama-bench PATH] [--json]

Everything takes turns, in rounds whose order alternates, so that noise falls on all;
medians with spread:
- plain decoding, a token a pass, beside transformers' own float32 `generate` with the same
  prompt, as many tokens and threads, in a process of its own (aim: 2.5 times as fast);
- passes of 1 to 32 rows, from nothing and over 512 tokens (aim: 16 rows at most 3 times
  1 row);
- with llama.cpp's `llama-bench`, its prompt rate for 32 tokens on the same GGUF file, also
  from nothing and over 512 tokens, with as many threads (aim: 32 rows are as fast). Its
  prompt test works out the logits of the last token only (`common_batch_get_one` marks no
  other), where a pass that verifies needs those of every row, a seventh of the work of this
  model; so our 32 rows are timed both ways. `--peers` builds it from a public package into
  the cache, `--llama-bench` names one.
First of all the resident memory with the engine's model alone (aim: under 3 GB).
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.common import MODEL, Report, memory_of, spread, verdict
from benchmarks.device import llama_peer
from benchmarks.device.passes import CONTEXTS, PROMPT, WINDOWS, Staircase, plain, tokens_of
from benchmarks.device.transformers_peer import Generate
from engine.loader import load_model
from engine.store import path, resolve

AIM_DECODING = 2.5
AIM_ROWS = 3.0
AIM_BYTES = 3e9


def main(arguments: list[str] | None = None) -> None:
    """Print every comparison with its aim."""
    parser = argparse.ArgumentParser(description="What a pass costs here.")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--dtype", help="of the engine's model (default: what it takes here)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--llama-bench", type=Path, help="path of llama.cpp's llama-bench")
    parser.add_argument("--peers", action="store_true", help="build llama-bench where missing")
    Report.add_option(parser)
    options = parser.parse_args(arguments)
    report = Report(options)
    llama = options.llama_bench or (llama_peer.built(report.say) if options.peers else None)
    folder = resolve(options.model, lambda progress: None, lambda: False)
    runner = load_model(options.model, folder, None, options.dtype).runner
    threads = torch.get_num_threads()
    report.say(f"{runner.name}, {runner.dtype}, {threads} threads")
    staircase = Staircase(runner)
    tell_memory(report)

    prompt = tokens_of(PROMPT, 3)
    mine: list[float] = []
    others: list[float] = []
    rates: list[llama_peer.Rates] = []
    with contextlib.ExitStack() as stack:
        generate = stack.enter_context(Generate(folder, PROMPT, options.tokens))
        generate.wait_until_loaded()
        turns: list[Callable[[], None]] = [
            staircase.round,
            lambda: mine.append(options.tokens / plain(runner, prompt, options.tokens)),
            lambda: others.append(options.tokens / generate.seconds()),
        ]
        if llama is not None:
            gguf = path(options.model)
            turns.insert(0, lambda: rates.append(llama_peer.run(llama, gguf, CONTEXTS, threads)))
        for round_ in range(options.rounds):
            for turn in turns if round_ % 2 == 0 else turns[::-1]:
                turn()
            report.say(f"round {round_ + 1} of {options.rounds}")
    tell_decoding(report, mine, others)
    tell_staircase(report, staircase.times)
    if rates:
        tell_llama(report, staircase, rates)
    report.close()


def tell_memory(report: Report) -> None:
    """Tell what this process holds with the engine's model alone."""
    resident = memory_of().resident
    if resident:
        aim = verdict(resident < AIM_BYTES, f"under {AIM_BYTES / 1e9:g} GB")
        report.say(f"resident memory: {resident / 1e9:.2f} GB; {aim}")
    report.figure("resident_bytes", resident)


def tell_decoding(report: Report, mine: list[float], others: list[float]) -> None:
    """Tell both rates of plain decoding; the ratio is of neighbours in time."""
    ratio = statistics.median(a / b for a, b in zip(mine, others, strict=True))
    report.say(
        f"plain decoding after {PROMPT} tokens: {spread(mine)} tokens/s, transformers float32 "
        f"generate {spread(others)}: {ratio:.2f} times; "
        + verdict(ratio >= AIM_DECODING, f"at least {AIM_DECODING:g}")
    )
    report.figures(
        {"plain_rate": mine, "transformers_rate": others, "plain_over_transformers": ratio}
    )


def tell_staircase(report: Report, times: dict[tuple[int, int], list[float]]) -> None:
    """Tell every window over every context, and the ratio that the aim is about."""
    for context in CONTEXTS:
        one = times[context, 1]
        for window in WINDOWS:
            seen = times[context, window]
            middle = statistics.median(seen)
            report.say(
                f"{window:>3} rows over {context} tokens: {spread([1000 * t for t in seen], ' ms')}"
                f" a pass, {window / middle:.1f} rows/s, {_ratio(seen, one):.2f} of 1 row"
            )
            report.figure(f"pass_seconds_{window}_over_{context}", seen)
        ratio = _ratio(times[context, 16], one)
        aim = verdict(ratio <= AIM_ROWS, f"at most {AIM_ROWS:g}")
        report.say(f"16 rows / 1 row over {context} tokens: {ratio:.2f}; {aim}")
        report.figure(f"rows_16_over_1_over_{context}", ratio)


def tell_llama(report: Report, staircase: Staircase, rates: list[llama_peer.Rates]) -> None:
    """Tell llama.cpp's rates beside ours over the same contexts."""
    report.say(f"llama.cpp {rates[0].build}")
    for context in CONTEXTS:
        theirs = [rate.prompt[context] for rate in rates]
        ways = {
            ("prompt", "as a prompt, logits of the last"): staircase.prompts.get(context, []),
            ("rows", "verified, logits of all"): staircase.times[context, llama_peer.ROWS],
        }
        for (key, way), seconds in ways.items():
            if not seconds:
                continue
            ours = [llama_peer.ROWS / one for one in seconds]
            ratio = _ratio(ours, theirs)
            report.say(
                f"{llama_peer.ROWS} rows over {context} tokens, {way}: {spread(ours)} tokens/s, "
                f"llama.cpp's prompt {spread(theirs)}: {ratio:.2f} times; "
                + verdict(ratio >= 1.0, "at least 1")
            )
            report.figure(f"{key}_32_over_llama_over_{context}", ratio)
        single = [rate.single[context] for rate in rates]
        alone = [1.0 / seconds for seconds in staircase.times[context, 1]]
        report.say(
            f"  1 row over {context} tokens: {spread(alone)} tokens/s, llama.cpp token by token "
            f"{spread(single)}: {_ratio(alone, single):.2f} times"
        )
        report.figures(
            {
                f"llama_prompt_rate_over_{context}": theirs,
                f"llama_single_rate_over_{context}": single,
            }
        )


def _ratio(a: list[float], b: list[float]) -> float:
    """Return the median of the ratios of what was measured in the same round."""
    return statistics.median(x / y for x, y in zip(a, b, strict=True))


if __name__ == "__main__":
    main()
