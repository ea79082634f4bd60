"""How long a start of the engine takes, and the memory that it then holds.

    python -m benchmarks.start [--model NAME] [--dtype D] [--runs N] [--convert] [--json]

A second start: what the model needs is in the cache. A new engine process is started, as
an editor does, and at once asked for one token of a short answer; the time is from the
start of the process to the end of its first pass, its answer received (aim: under 5 s).
Then a few more tokens are asked for, which waits until all weights are packed, and the
process' resident memory is read (aim: under 3 GB). In turn with the starts, in processes
of their own: what importing torch, importing transformers' tokenizers and reading the
bytes of the weights take, which no start of such a model can do without.

`--convert` measures a first start before: it converts the GGUF file, which must be in the
cache (`redraft models pull NAME`), into a temporary cache, so the user's own is left alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.common import MODEL, Memory, Report, cpu_seconds_of, memory_of, spread, verdict
from engine.store import path, resolve

AIM_SECONDS = 5.0
AIM_BYTES = 3e9
LONGEST_START = 600.0
PROMPT = "Write a Python function that adds two numbers."
MORE_TOKENS = 8

READ = """
import sys
for name in sys.argv[1:]:
    with open(name, "rb", buffering=0) as file:
        while file.read(1 << 22):
            pass
"""

BASELINES = {
    "import torch": "import torch",
    "import transformers": "from transformers import AutoConfig, AutoTokenizer",
    "read weights": READ,
}


class Start(NamedTuple):
    """What one start took.

    Attributes:
        listening: seconds until the engine could be asked.
        seconds: until the answer of the first pass was there.
        cpu_seconds: of cores used until then, which other work on the machine changes less.
        first: memory then.
        settled: memory when all weights were packed.
    """

    listening: float
    seconds: float
    cpu_seconds: float
    first: Memory
    settled: Memory


def main(arguments: list[str] | None = None) -> int:
    """Print the medians beside their aims."""
    parser = argparse.ArgumentParser(description="Times of a start of the engine.")
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--dtype", help="as `python -m engine --dtype`")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--convert", action="store_true", help="measure a first start, too")
    Report.add_option(parser)
    options = parser.parse_args(arguments)
    report = Report(options)
    engine = ["--model", options.model, *(["--dtype", options.dtype] if options.dtype else [])]
    if options.convert:
        first = first_start(options.model, engine)
        report.figure("first_start_seconds", first.seconds)
        report.say(f"first start, with the conversion: {first.seconds:.1f} s to the first pass")
    folder = resolve(options.model, lambda progress: None, lambda: False)
    start(engine)  # not counted: what is missing in the cache is made now
    weights = weight_files(folder, options.dtype)
    starts: list[Start] = []
    baselines: dict[str, list[float]] = {name: [] for name in BASELINES}
    for _ in range(options.runs):
        starts.append(start(engine))
        for name, seen in baselines.items():
            seen.append(timed(lambda name=name: _baseline(name, weights)))
        report.say(f"a start: {starts[-1].seconds:.2f} s")
    _tell(report, starts, baselines, sum(file.stat().st_size for file in weights))
    report.close()
    return 0


def start(arguments: list[str], environment: Mapping[str, str] | None = None) -> Start:
    """Start an engine, ask it twice, stop it.

    Raises:
        RuntimeError: it did not answer.
    """
    with tempfile.TemporaryDirectory(prefix="redraft-") as runtime:
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "engine", *arguments],
            env={**os.environ, **(environment or {}), "REDRAFT_RUNTIME_DIR": runtime},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            with _client(Path(runtime) / "engine.json", process) as client:
                listening = time.perf_counter() - started
                _ask(client, 1)
                seconds = time.perf_counter() - started
                spent, first = cpu_seconds_of(process.pid), memory_of(process.pid)
                _ask(client, MORE_TOKENS)
                return Start(listening, seconds, spent, first, memory_of(process.pid))
        finally:
            process.terminate()
            process.wait(30)


def first_start(model: str, arguments: list[str]) -> Start:
    """Start an engine on an empty cache that holds the GGUF file only."""
    gguf = path(model)
    with tempfile.TemporaryDirectory(prefix="redraft-start-") as cache:
        models = Path(cache) / "models"
        models.mkdir(mode=0o700)
        for file in (gguf, gguf.with_name(gguf.name + ".json")):
            shutil.copy2(file, models)
        return start(arguments, {"REDRAFT_CACHE_DIR": cache})


def weight_files(folder: Path, dtype: str | None) -> list[Path]:
    """Return the files that a start reads the weights from."""
    from engine.int8.weights import ready_int8

    made = ready_int8(folder) if dtype in (None, "int8") else None
    return sorted((made or folder).glob("*.safetensors"))


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _baseline(name: str, weights: list[Path]) -> None:
    files = weights if name == "read weights" else []
    subprocess.run([sys.executable, "-c", BASELINES[name], *map(str, files)], check=True)


@contextlib.contextmanager
def _client(record: Path, process: subprocess.Popen[bytes]) -> Iterator[httpx.Client]:
    """Wait for the engine's record and give a client for it."""
    deadline = time.monotonic() + LONGEST_START
    while not record.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"The engine did not start (exit code {process.returncode}).")
        time.sleep(0.01)
    url = json.loads(record.read_text("utf-8"))["url"]
    transport = httpx.HTTPTransport(uds=url.removeprefix("unix:"))
    with httpx.Client(
        transport=transport, base_url="http://engine", timeout=LONGEST_START, trust_env=False
    ) as client:
        yield client


def _ask(client: httpx.Client, tokens: int) -> None:
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": tokens,
        "redraft": {"draft": False},
    }
    answer = client.post("/v1/chat/completions", json=body)
    if answer.status_code != 200:
        raise RuntimeError(f"The engine answered {answer.status_code}: {answer.text}")


def _tell(
    report: Report, starts: list[Start], baselines: dict[str, list[float]], weight_bytes: int
) -> None:
    seconds = [one.seconds for one in starts]
    middle = statistics.median(seconds)
    report.say(
        f"second start to first pass, {len(starts)} runs: {spread(seconds, ' s')}; "
        + verdict(middle < AIM_SECONDS, f"under {AIM_SECONDS:g} s")
    )
    listening = [one.listening for one in starts]
    cpu = [one.cpu_seconds for one in starts]
    report.say(f"  until it listens: {spread(listening, ' s')}; cores used: {spread(cpu, ' s')}")
    for name, times in baselines.items():
        what = f"{name}, {weight_bytes / 1e9:.2f} GB" if name == "read weights" else name
        ratio = middle / statistics.median(times)
        report.say(f"  {what}: {spread(times, ' s')}; the start is {ratio:.1f} times that")
    together = sum(statistics.median(times) for times in baselines.values())
    report.say(f"  start / these one after the other: {middle / together:.2f}")
    settled = [one.settled.resident for one in starts]
    if all(settled):
        report.say(
            f"resident memory with all weights packed: {spread([b / 1e9 for b in settled], ' GB')}"
            "; " + verdict(max(settled) < AIM_BYTES, f"under {AIM_BYTES / 1e9:g} GB")
        )
        peaks = [one.settled.peak / 1e9 for one in starts]
        firsts = [one.first.resident / 1e9 for one in starts]
        report.say(f"  after the first pass: {spread(firsts, ' GB')}; peak: {spread(peaks, ' GB')}")
    report.figures(
        {
            "start_seconds": seconds,
            "listening_seconds": listening,
            "cpu_seconds": cpu,
            "resident_bytes": settled,
            "resident_bytes_after_first_pass": [one.first.resident for one in starts],
            "peak_bytes": [one.settled.peak for one in starts],
            "weight_bytes": weight_bytes,
            "aims": {"start_seconds": AIM_SECONDS, "resident_bytes": AIM_BYTES},
            **{f"{name} seconds": times for name, times in baselines.items()},
        }
    )


if __name__ == "__main__":
    raise SystemExit(main())
