"""How long the model takes to start: conversion of the GGUF file, then loads.

    python -m benchmarks.start [--model NAME] [--dtype int8] [--loads N]

The conversion runs into a temporary cache, so the user's own is left alone; it needs the
GGUF file in the cache (`redraft models pull NAME`). Every load is a new process, as a
start of the engine is: it counts importing torch, the tokenizer, weights and packing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from engine.store import path

LOAD = """
import sys, time
started = time.perf_counter()
from engine.threads import limit_spinning
limit_spinning()
from engine.loader import load_model
imported = time.perf_counter()
from engine.store import resolve
folder = resolve(sys.argv[1], lambda progress: None, lambda: False)
converted = time.perf_counter()
loaded = load_model(sys.argv[1], folder, None, sys.argv[2] or None)
ready = time.perf_counter()
loaded.runner.verify(loaded.runner.new_cache(8), [1, 2])
print(loaded.runner.name, imported - started, converted - imported, ready - converted,
      time.perf_counter() - ready)
"""


def main() -> None:
    """Print the seconds of each part."""
    parser = argparse.ArgumentParser(description="Times of a start of the engine.")
    parser.add_argument("--model", default="qwen2.5-coder-1.5b-instruct")
    parser.add_argument("--dtype", default="", help="as `python -m engine --dtype`")
    parser.add_argument("--loads", type=int, default=3)
    options = parser.parse_args()
    gguf = path(options.model)
    with tempfile.TemporaryDirectory(prefix="redraft-start-") as cache:
        models = Path(cache) / "models"
        models.mkdir(mode=0o700)
        for file in (gguf, gguf.with_name(gguf.name + ".json")):
            shutil.copy2(file, models)
        _print("first start", [_start(options.model, options.dtype, cache)])
        starts = [_start(options.model, options.dtype, cache) for _ in range(options.loads)]
        _print(f"later starts, median of {options.loads}", starts)


def _start(model: str, dtype: str, cache: str) -> tuple[str, list[float]]:
    """Return the runner's name and the seconds of each part of one start."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", LOAD, model, dtype],
        env={**os.environ, "REDRAFT_CACHE_DIR": cache},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    runner, *seconds = done.stdout.split()
    return runner, [*map(float, seconds), time.perf_counter() - started]


def _print(title: str, starts: list[tuple[str, list[float]]]) -> None:
    parts = ("import", "convert GGUF", "load", "first pass", "process in all")
    columns = zip(*(seconds for _, seconds in starts), strict=True)
    medians = [statistics.median(column) for column in columns]
    shown = ", ".join(f"{part} {value:.1f} s" for part, value in zip(parts, medians, strict=True))
    print(f"{title} ({starts[0][0]}): {shown}", flush=True)


if __name__ == "__main__":
    main()
