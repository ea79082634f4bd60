"""`redraft engine status|start|stop`: look at, start and stop the engine of this machine."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping
from typing import Any

from lsp_server.core import Progress, RewriteError
from lsp_server.engine_files import EngineRecord, find_record
from lsp_server.engine_http import ask_health
from lsp_server.engine_process import ensure_engine, stop_engine
from redraft.exit_codes import ExitCode, exit_code_of_error
from redraft.model_name import absolute_model

HELP = "run, show or stop the engine"


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the `engine` command."""
    parser = subparsers.add_parser("engine", help=HELP, description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    status = actions.add_parser("status", help="say whether the engine runs, and what it does")
    status.add_argument("--json", action="store_true", help="print one JSON object")
    start = actions.add_parser("start", help="start the engine unless it runs already")
    start.add_argument("--model", help="the model of requests that name none")
    start.add_argument("--device", help="cpu, cuda, cuda:1, ...")
    start.add_argument("--dtype", help="how weights are held")
    start.add_argument("--runner", help="how passes are run: cpu-int8, cuda-graphs, eager, plain")
    start.add_argument(
        "--idle-seconds", metavar="N", help="stop after so long without a request; 0: never"
    )
    actions.add_parser("stop", help="stop the engine; a rewrite that runs is given up")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        if args.action == "status":
            return asyncio.run(_status(as_json=args.json))
        if args.action == "start":
            return asyncio.run(_start(_engine_options(args)))
        return asyncio.run(_stop())
    except RewriteError as error:
        print(f"redraft: {error.message}", file=sys.stderr)
        return exit_code_of_error(error.code)


async def _status(*, as_json: bool) -> int:
    record = find_record()
    health = None
    answers = True
    if record is not None:
        try:
            health = await ask_health(record.endpoint)
        except TimeoutError:
            answers = False
    if as_json:
        state = "stopped" if answers else "silent"
        print(json.dumps({"status": state} if health is None else dict(health)))
    elif health is not None:
        print(_sentence(health))
    elif answers or record is None:
        print("The engine does not run; the next rewrite starts it.")
    else:
        print(f"The engine (process {record.pid}) runs but does not answer.")
    return ExitCode.DONE if health is not None else ExitCode.FAILURE


def _sentence(health: Mapping[str, Any]) -> str:
    """What `/healthz` says, for people."""
    parts = [f"The engine {health.get('version')} runs as process {health.get('pid')}"]
    parts.append(f"model {health.get('model') or 'not loaded yet'}")
    running = health.get("running")
    if isinstance(running, dict):
        parts[-1] += " on {runner}, {device}, {dtype}".format_map(running)
    activity = health.get("activity")
    if isinstance(activity, dict):
        fraction = activity.get("fraction")
        share = f" {fraction:.0%}" if isinstance(fraction, int | float) else ""
        detail = f" ({activity['detail']})" if activity.get("detail") else ""
        parts.append(f"{activity.get('phase')}{share}{detail}")
    else:
        parts.append(str(health.get("status")))
    if health.get("queued"):
        parts.append(f"{health['queued']} waiting")
    notice = running.get("notice") if isinstance(running, dict) else ""
    return ", ".join(parts) + "." + (f"\n{notice}" if notice else "")


def _engine_options(args: argparse.Namespace) -> list[str]:
    options: list[str] = []
    for name in ("model", "device", "dtype", "runner", "idle_seconds"):
        value = getattr(args, name)
        if name == "model":
            value = absolute_model(value)
        if value is not None:
            options += [f"--{name.replace('_', '-')}={value}"]
    return options


async def _start(options: list[str]) -> int:
    started = False

    def hear(progress: Progress) -> None:
        nonlocal started
        started = True
        print(f"Starting the engine {progress.detail}".rstrip() + " ...", file=sys.stderr)

    endpoint = await ensure_engine(hear, options)
    if options and not started:
        # An option that does nothing must not pass for one that did.
        raise RewriteError(
            "engine_failed",
            "The engine runs already, with other options perhaps; "
            "stop it first with `redraft engine stop`.",
        )
    record: EngineRecord | None = find_record()
    process = f" as process {record.pid}" if record is not None else ""
    print(f"The engine runs{process} at {endpoint.url}.")
    return ExitCode.DONE


async def _stop() -> int:
    if await stop_engine():
        print("The engine has stopped.")
    else:
        print("The engine did not run.")
    return ExitCode.DONE
