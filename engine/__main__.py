"""`python -m engine`: serve this machine's requests."""

from __future__ import annotations

import argparse
import math
import os
import sys

from engine.core import Generator
from engine.threads import limit_spinning

DEFAULT_MODEL = "qwen2.5-coder-1.5b-instruct"

PREFIX_VARIABLE = "REDRAFT_PREFIX_CACHE_MB"
RUNNER_VARIABLE = "REDRAFT_RUNNER"

RUNNERS = ("cpu-int8", "cuda-graphs", "eager", "plain")
"""Here by name: their modules import torch. `tests/engine/test_choice.py` compares."""


def main(arguments: list[str] | None = None) -> int:
    """Run the engine; the exit code is 0 also when another one is running already."""
    parser = _parser()
    options = parser.parse_args(arguments)
    prefix_budget = options.prefix_cache_mb
    if prefix_budget is None and (text := os.environ.get(PREFIX_VARIABLE)):
        try:
            prefix_budget = _megabytes(text)
        except argparse.ArgumentTypeError as error:
            parser.error(f"the environment variable {PREFIX_VARIABLE}: {error}")
    runner = options.runner or os.environ.get(RUNNER_VARIABLE) or None
    if runner not in (None, *RUNNERS):
        parser.error(
            f"the environment variable {RUNNER_VARIABLE}: {runner!r} is none of "
            f"{', '.join(RUNNERS)}"
        )
    limit_spinning()
    from engine.server.lifecycle import ServeOptions, run
    from engine.store.known import KNOWN_MODELS

    def make_generator() -> Generator:
        # Imports torch, so only in the process that serves, and on its worker thread.
        from engine.host import ModelHost

        return ModelHost(options.device, options.dtype, options.model, prefix_budget, runner)

    return run(
        make_generator,
        ServeOptions(
            default_model=options.model,
            known_models=[known.name for known in KNOWN_MODELS],
            idle_seconds=options.idle_seconds,
            tcp=options.tcp,
        ),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m engine", description="The redraft engine.")
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        help="the model of requests that name none (default: %(default)s)",
    )
    parser.add_argument(
        "--device",
        help="cpu, cuda, cuda:1, ...; auto: spread over all GPUs (default: the best there is)",
    )
    parser.add_argument("--dtype", help="how weights are held (default: what suits the device)")
    parser.add_argument(
        "--runner",
        choices=RUNNERS,
        help="how passes are run (default: the environment variable "
        f"{RUNNER_VARIABLE}, else the fastest exact one)",
    )
    parser.add_argument(
        "--idle-seconds",
        type=_seconds,
        default=900.0,
        metavar="N",
        help="stop after so long without a request; 0: never (default: %(default)g)",
    )
    parser.add_argument(
        "--prefix-cache-mb",
        type=_megabytes,
        metavar="N",
        help="keep so many MiB of earlier prompts' KV caches; 0: none (default: the environment "
        f"variable {PREFIX_VARIABLE}, else 256 on a CPU and 2048 elsewhere)",
    )
    parser.add_argument(
        "--tcp",
        action="store_true",
        help="listen on a loopback port with a token instead of a Unix socket",
    )
    return parser


def _seconds(text: str) -> float:
    seconds = float(text)
    if not math.isfinite(seconds) or seconds < 0:
        raise argparse.ArgumentTypeError("must be 0 or more seconds")
    return seconds


def _megabytes(text: str) -> int:
    """Return bytes."""
    try:
        megabytes = float(text)
    except ValueError:
        megabytes = math.nan
    if not math.isfinite(megabytes) or megabytes < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of MiB, 0 or more")
    return int(megabytes * (1 << 20))


if __name__ == "__main__":
    sys.exit(main())
