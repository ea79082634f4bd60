"""`redraft doctor`: what this machine makes of a model, measured, and what to do about it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from redraft.commands.doctor_plot import CannotDraw, check, draw
from redraft.exit_codes import ExitCode, exit_code_of_error
from redraft.model_name import absolute_model

if TYPE_CHECKING:
    from rich.table import Table

    from engine.health_check import Report

HELP = "measure what passes cost on this machine"
DEFAULT_MODEL = "qwen2.5-coder-1.5b-instruct"


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the `doctor` command."""
    parser = subparsers.add_parser("doctor", help=HELP, description=__doc__)
    parser.add_argument("--model", default=DEFAULT_MODEL, help="default: %(default)s")
    parser.add_argument("--device", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--dtype", help="how weights are held")
    parser.add_argument("--runner", help="how passes are run; default: the fastest exact way")
    parser.add_argument(
        "--seconds", type=_seconds, default=20.0, metavar="N", help="time for measuring passes"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the costs into a .png or .svg file"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from engine.core import Cancelled, EngineError
    from engine.threads import limit_spinning

    limit_spinning()
    try:
        if args.plot is not None:
            check(args.plot)
        report = _examine(args)
    except (EngineError, CannotDraw) as error:
        if args.json:
            print(json.dumps({"status": "failed", "code": error.code, "message": error.message}))
        else:
            print(f"redraft: {error.message}", file=sys.stderr)
        return exit_code_of_error(error.code)
    except (Cancelled, KeyboardInterrupt):
        if args.json:
            message = "Interrupted before anything was measured."
            print(json.dumps({"status": "cancelled", "code": "interrupted", "message": message}))
        else:
            print("redraft: Interrupted.", file=sys.stderr)
        return ExitCode.INTERRUPTED
    if args.json:
        print(json.dumps(_as_json(report)))
    else:
        _print(report)
    if args.plot is not None:
        try:
            draw(report, args.plot)
        except CannotDraw as error:  # the report stands all the same
            print(f"redraft: {error.message}", file=sys.stderr)
            return exit_code_of_error(error.code)
    return ExitCode.DONE


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0.0 < seconds <= 600.0:
        raise argparse.ArgumentTypeError("must be up to 600 seconds")
    return seconds


def _examine(args: argparse.Namespace) -> Report:
    from engine.core import Progress
    from engine.health_check import examine, load_now
    from engine.loader import load_model
    from engine.store import resolve
    from lsp_server.engine_files import find_record

    phase = ""
    load = load_now()

    def hear(progress: Progress) -> None:
        nonlocal phase
        if progress.phase != phase:
            phase = progress.phase
            print(f"{phase} {progress.detail}".rstrip() + " ...", file=sys.stderr)

    if find_record() is not None:
        print(
            "An engine runs and holds memory and perhaps cores; "
            "`redraft engine stop` before this gives truer figures.",
            file=sys.stderr,
        )
    model = absolute_model(args.model) or DEFAULT_MODEL
    folder = resolve(model, hear, lambda: False)
    hear(Progress("loading", None, model))
    loaded = load_model(model, folder, args.device, args.dtype, hear, runner=args.runner)
    hear(Progress("measuring", None, f"for about {args.seconds:g} seconds"))
    return examine(loaded, load, args.seconds)


def _as_json(report: Report) -> dict[str, object]:
    from engine.health_check import advice

    return {
        **asdict(report),
        "points": [point._asdict() for point in report.points],
        "memory": report.memory._asdict(),
        "plain_rate": report.plain_rate,
        "advice": advice(report),
    }


def _print(report: Report) -> None:
    from rich.console import Console

    from engine.health_check import advice

    console = Console(highlight=False)

    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    exact = "exact" if report.exact else "not exact"
    say(f"{report.model}: {report.runner} on {report.device} in {report.dtype}, {exact}")
    say(f"{report.threads} threads on {report.cores} cores\n")
    console.print(_staircase(report))
    say(f"\nplain decoding: {1.0 / report.row_seconds:.1f} tokens/s")
    say(f"a copy of memory reads and writes {report.copy_rate / 1e9:.1f} GB/s")
    share = report.plain_rate / report.copy_rate
    say(f"plain decoding reads weights at {report.plain_rate / 1e9:.1f} GB/s, {share:.0%} of it")
    say(_memory(report) + "\n")
    for sentence in advice(report):
        say(sentence)


def _memory(report: Report) -> str:
    from engine.health_memory import DeviceMemory

    parts = [
        f"weights {report.weight_bytes / 1e9:.2f} GB",
        f"keys and values {1000 * report.kv_bytes_a_token / 1e6:.1f} MB for 1,000 tokens",
    ]
    if report.resident_bytes:
        parts.append(f"this process {report.resident_bytes / 1e9:.2f} GB")
    if report.memory != DeviceMemory():
        free, total = report.memory.free / 1e9, report.memory.total / 1e9
        parts.append(f"free on {report.device} {free:.2f} of {total:.2f} GB")
    return "memory: " + ", ".join(parts)


def _staircase(report: Report) -> Table:
    from rich.table import Table

    from engine.health_check import contexts_of

    contexts = contexts_of(report.points)
    seconds = {(p.window, p.context): p.seconds for p in report.points}
    table = Table("rows", *(f"ms over {c}" for c in contexts), "ms a row", "of 1 row")
    for window in sorted({p.window for p in report.points}):
        row = [seconds[window, context] for context in contexts]
        table.add_row(
            str(window),
            *(f"{1000 * s:.1f}" for s in row),
            f"{1000 * row[0] / window:.1f}",
            f"{row[0] / report.row_seconds:.2f}",
        )
    return table
