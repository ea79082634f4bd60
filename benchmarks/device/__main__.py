"""What a pass of the engine costs here, beside transformers' own float32 `generate`.

    python -m benchmarks.device [--model NAME] [--rounds N] [--tokens N] [--llama-bench PATH]

In one run, in turn, medians with spread:
plain decoding, a token a pass, beside `generate` with the same prompt and as many tokens
(aim: at least 2.5 times as fast); passes of 1 to 32 rows over 512 tokens (aim: 16 rows at
most 3 times 1 row); with llama.cpp's own `llama-bench`, where it is named, its prompt rate
for 32 tokens on the same GGUF file (aim: passes of 32 rows are as fast). First of all
the resident memory with the engine's model alone (aim: under 3 GB).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import MODEL, machine, spread
from engine.loader import LoadedModel, load_model
from engine.runner import Runner
from engine.store import path, resolve

WINDOWS = (1, 2, 4, 8, 12, 16, 24, 32)
CONTEXT = 512
PROMPT = 128


def main(arguments: list[str] | None = None) -> None:
    """Print every comparison with its aim."""
    parser = argparse.ArgumentParser(description="What a pass costs here.")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--dtype", help="of the engine's model (default: what it takes here)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--llama-bench", help="path of llama.cpp's llama-bench")
    options = parser.parse_args(arguments)
    print(machine(), flush=True)
    folder = resolve(options.model, lambda progress: None, lambda: False)
    ours = load_model(options.model, folder, None, options.dtype)
    runner = ours.runner
    print(f"{runner.name}, {runner.dtype}, {torch.get_num_threads()} threads")
    passes = staircase(runner, options.rounds)
    print(f"resident memory: {resident() / 1e9:.2f} GB (aim: under 3)", flush=True)
    print_staircase(passes)
    if options.llama_bench:
        compare_with_llama(options.llama_bench, path(options.model), passes, options.rounds)
    compare_with_generate(ours, folder, options.rounds, options.tokens)


def staircase(runner: Runner, rounds: int) -> dict[int, list[float]]:
    """Return the seconds of passes of each window over `CONTEXT` tokens, in rounds."""
    cache = runner.new_cache(CONTEXT + max(WINDOWS))
    for _ in runner.prefill(cache, tokens_of(CONTEXT, 1)):
        pass
    times: dict[int, list[float]] = {window: [] for window in WINDOWS}
    for _ in range(rounds):
        for window, seen in times.items():
            tokens = tokens_of(window, 2)
            seen.append(timed(lambda tokens=tokens: runner.verify(cache, tokens)))
            cache.rollback(window)
    return times


def print_staircase(passes: dict[int, list[float]]) -> None:
    """Print a line for each window, and the ratio that the aim is about."""
    one = statistics.median(passes[1])
    for window, times in passes.items():
        middle = statistics.median(times)
        print(
            f"{window:>3} rows: {spread([1000 * t for t in times], ' ms', 0)} a pass, "
            f"{window / middle:.1f} rows/s, {middle / one:.2f} of 1 row"
        )
    ratio = statistics.median(passes[16]) / one
    print(f"16 rows / 1 row: {ratio:.2f} (aim: at most 3)", flush=True)


def compare_with_generate(ours: LoadedModel, folder: Path, rounds: int, tokens: int) -> None:
    """Decode plainly with the engine's runner and with transformers, in turn."""
    from transformers import AutoModelForCausalLM

    theirs: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
    )
    prompt = tokens_of(PROMPT, 3)
    mine, other = [], []
    for round_ in range(rounds + 1):
        pair = plain(ours.runner, prompt, tokens), generate(theirs, prompt, tokens)
        if round_:  # the first is not counted
            mine.append(tokens / pair[0])
            other.append(tokens / pair[1])
    ratio = statistics.median(mine) / statistics.median(other)
    print(
        f"plain decoding: {spread(mine)} tokens/s, transformers float32 generate "
        f"{spread(other)}: {ratio:.2f} times (aim: at least 2.5)",
        flush=True,
    )


def plain(runner: Runner, prompt: list[int], tokens: int) -> float:
    """Return the seconds of `tokens` greedy passes of one row; the prefill is not counted."""
    cache = runner.new_cache(len(prompt) + tokens)
    for _ in runner.prefill(cache, prompt[:-1]):
        pass

    def decode() -> None:
        last = prompt[-1]
        for _ in range(tokens):
            last = int(runner.verify(cache, [last])[0].argmax())

    return timed(decode)


def generate(model: Any, prompt: list[int], tokens: int) -> float:
    """Return the seconds that transformers takes for as many tokens, less those for one."""

    def run(count: int) -> float:
        ids = torch.tensor([prompt])
        settings = {"do_sample": False, "min_new_tokens": count, "max_new_tokens": count}
        return timed(lambda: model.generate(ids, attention_mask=torch.ones_like(ids), **settings))

    one = run(1)
    return run(tokens + 1) - one


def compare_with_llama(
    program: str, gguf: Path, passes: dict[int, list[float]], rounds: int
) -> None:
    """Print llama.cpp's rates for 32 tokens of a prompt and for single tokens."""
    done = subprocess.run(
        [program, "-m", str(gguf), "-p", "32", "-n", "16", "-r", str(rounds),
         "-t", str(torch.get_num_threads()), "-o", "json"],
        check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    rates = {run["n_prompt"]: run["avg_ts"] for run in json.loads(done.stdout)}
    ours = 32 / statistics.median(passes[32])
    print(
        f"32 rows: {ours:.1f} tokens/s, llama.cpp {rates[32]:.1f} for a prompt of 32 "
        f"(aim: at least as many) and {rates[0]:.1f} token by token",
        flush=True,
    )


def tokens_of(count: int, seed: int) -> list[int]:
    """Return `count` ids that every vocabulary has."""
    return [(seed * 7919 + i * 104729) % 250 + 3 for i in range(count)]


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def resident() -> int:
    """Return this process' resident memory in bytes (Linux; 0 elsewhere)."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
