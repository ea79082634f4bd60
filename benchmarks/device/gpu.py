"""The CUDA-graph runner on a GPU: exactness under an adversary, the staircase, rates.

    sh benchmarks/device/gpu.sh [--shape 7b|tiny] [--layers N] [--windows N] [--json]

The model is a randomly initialised Qwen2 of the shape of the 7B, in bfloat16, so nothing is
downloaded. In one run, medians with spread:

- exactness: an adversary's drafts, right, wrong and half right, against plain decoding;
- the staircase: passes of 1 to 128 rows over three lengths of context, and the fixed pass
  that exact answers run;
- plain decoding, exact and not, in tokens/s and GB/s, beside what a copy reaches;
- tokens/s where every draft of a given length is accepted.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch

from benchmarks.common import machine, spread
from engine.cuda.runner import LADDER, SHORTEST_CONTEXT, CudaGraphRunner
from engine.kv_cache import KVCache

CONTEXTS = (512, 2048, 8192)
FORCED = (0, 1, 3, 7, 15, 31)
"""Accepted drafted tokens a pass."""

ANSWER = 64
"""Tokens of an answer of the adversary's."""

ROUNDS = 15
COPIED_BYTES = 1 << 30

SHAPES: dict[str, dict[str, Any]] = {
    "7b": {
        "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
    },
    "tiny": {
        "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
    },
}  # fmt: skip


class Timed(NamedTuple):
    """Seconds of one pass of `rows` rows over `context` tokens."""

    rows: int
    context: int
    seconds: list[float]

    @property
    def median(self) -> float:
        """Median seconds."""
        return statistics.median(self.seconds)


@dataclass(slots=True)
class Findings:
    """All that was measured; rates in bytes or tokens a second."""

    machine: str
    weight_bytes: int
    windows: int = 0
    wrong: int = 0
    copy_rate: float = 0.0
    passes: list[Timed] = field(default_factory=list)
    exact_passes: list[Timed] = field(default_factory=list)
    forced: dict[int, list[float]] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 when a draft changed a token."""
    parser = argparse.ArgumentParser(description="The CUDA-graph runner on this GPU.")
    parser.add_argument("--shape", choices=SHAPES, default="7b")
    parser.add_argument("--layers", type=int, help="fewer layers than the shape has")
    parser.add_argument("--windows", type=int, default=300, help="passes of the adversary")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and options.shape != "tiny":
        print("gpu: There is no CUDA GPU here; try `--shape tiny`.", file=sys.stderr)
        return 2
    runner = make_runner(options.shape, options.layers, device)
    found = Findings(_machine(device), runner.weight_bytes)
    found.windows, found.wrong = attack(runner, options.windows)
    found.copy_rate = copy_rate(device)
    contexts = [c for c in CONTEXTS if c + LADDER[-1] <= runner.max_context] or [128]
    found.passes = [time_passes(runner, n, c, exact=False) for c in contexts for n in LADDER]
    found.exact_passes = [time_passes(runner, 1, context, exact=True) for context in contexts]
    for length in FORCED:
        found.forced[length] = forced_rate(runner, length, contexts[0])
    print(json.dumps(asdict(found)) if options.json else _text(found))
    return 1 if found.wrong else 0


def make_runner(shape: str, layers: int | None, device: torch.device) -> CudaGraphRunner:
    """Return the runner of a random model; its weights never leave the device."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = dict(SHAPES[shape])
    if layers:
        sizes["num_hidden_layers"] = layers
    torch.manual_seed(0)
    with torch.device(device):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            model: Any = Qwen2ForCausalLM(Qwen2Config(**sizes))
        finally:
            torch.set_default_dtype(before)
    return CudaGraphRunner(model.eval(), sizes["max_position_embeddings"])


def attack(runner: CudaGraphRunner, windows: int) -> tuple[int, int]:
    """Return how many windows of an adversary ran, and how many answers were changed.

    Every other answer goes over the end of the shortest rung, where a draft may be verified
    on a longer rung than plain decoding runs its tokens on. The answer is compared with
    plain decoding; where it differs once, the rest of that answer is not compared.
    """
    adversary = random.Random(0)
    ran = wrong = 0
    at_the_end = False
    while ran < windows:
        length = (
            SHORTEST_CONTEXT - adversary.randint(1, ANSWER)
            if at_the_end
            else adversary.randint(20, 700)
        )
        at_the_end = not at_the_end
        prompt = adversary.choices(range(3, runner.vocabulary), k=length)
        expected, _ = _decode(runner, prompt, lambda done: [])

        def half_right(done: int, answer: list[int] = expected) -> list[int]:
            length = adversary.randint(0, min(runner.max_draft, ANSWER - done - 1))
            draft = adversary.choices(range(3, runner.vocabulary), k=length)
            right = adversary.randint(0, length)
            return answer[done : done + right] + draft[right:]

        answer, passes = _decode(runner, prompt, half_right)
        wrong += answer != expected
        ran += passes
    return ran, wrong


def _decode(
    runner: CudaGraphRunner, prompt: list[int], draft_at: Callable[[int], list[int]]
) -> tuple[list[int], int]:
    """Decode greedily with the drafts of `draft_at(tokens so far)`; return answer and passes."""
    cache = _read(runner, prompt[:-1])
    answer: list[int] = []
    passes = 0
    last = prompt[-1]
    while len(answer) < ANSWER:
        draft = draft_at(len(answer))
        verdict = runner.verify_greedy(cache, [last, *draft])
        tokens = verdict.tokens
        cache.rollback(len(draft) - verdict.accepted)
        answer += tokens
        passes += 1
        last = tokens[-1]
    return answer, passes


def time_passes(runner: CudaGraphRunner, rows: int, context: int, exact: bool) -> Timed:
    """Time passes with their verdicts brought to the host."""
    cache = _read(runner, [5] * context, exact)
    tokens = [5] * rows

    def one() -> None:
        runner.verify_greedy(cache, tokens)
        cache.rollback(rows)

    return Timed(rows, context, timed(one, ROUNDS))


def forced_rate(runner: CudaGraphRunner, accepted: int, context: int) -> list[float]:
    """Return tokens/s of exact passes that emit `accepted` drafted tokens and one more.

    All drafted rows are verified and kept, whatever the verdict says.
    """
    cache = _read(runner, [5] * context)
    room = runner.max_context - context - 1

    def one() -> None:
        runner.verify_greedy(cache, [5] * (accepted + 1))
        if cache.length - context > room - runner.max_draft:
            cache.rollback(cache.length - context)

    return [(accepted + 1) / seconds for seconds in timed(one, ROUNDS)]


def copy_rate(device: torch.device) -> float:
    """Return bytes a second that a plain copy reads and writes."""
    size = COPIED_BYTES if device.type == "cuda" else 64 << 20
    source = torch.zeros(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def one() -> None:
        target.copy_(source)
        _wait(device)

    return 2 * size / statistics.median(timed(one, ROUNDS))


def timed(work: Callable[[], None], rounds: int) -> list[float]:
    """Return the seconds of each of some rounds, after two that do not count."""
    seconds = []
    for _ in range(rounds + 2):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return seconds[2:]


def _read(runner: CudaGraphRunner, tokens: list[int], exact: bool = True) -> KVCache:
    cache = runner.new_cache(len(tokens), exact)
    for _ in runner.prefill(cache, tokens):
        pass
    return cache


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _machine(device: torch.device) -> str:
    if device.type != "cuda":
        return machine()
    return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}"


def _text(found: Findings) -> str:
    lines = [
        found.machine,
        f"exactness: {found.windows} windows of an adversary, {found.wrong} answers changed",
        f"a copy reads and writes {found.copy_rate / 1e9:.0f} GB/s",
    ]
    least = {timed.context: timed.median for timed in found.passes if timed.rows == 1}
    for one in found.passes:
        lines.append(
            f"pass of {one.rows:3} rows over {one.context}: "
            f"{spread([1000 * s for s in one.seconds], ' ms', 3)}, "
            f"{one.median / least[one.context]:.2f} of 1 row"
        )
    single = [timed for timed in found.passes if timed.rows == 1]
    for title, timings in (("", single), ("exact ", found.exact_passes)):
        for one in timings:
            rate = found.weight_bytes / one.median
            lines.append(
                f"{title}plain decoding over {one.context}: "
                f"{spread([1 / s for s in one.seconds], ' tokens/s', 1)}, {rate / 1e9:.0f} GB/s, "
                f"{rate / found.copy_rate:.0%} of a copy"
            )
    for length, rates in found.forced.items():
        lines.append(f"{length:2} drafted tokens accepted a pass: {spread(rates, ' tokens/s', 1)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
