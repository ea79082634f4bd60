"""`redraft rewrite`: rewrite a part of one file, and show, print or write the result."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import sys

from rich.console import Console

from lsp_server.core import (
    GenerationOptions,
    HunksUpdate,
    Progress,
    RewriteError,
    RewriteRequest,
    RewriteResult,
)
from lsp_server.engine_client import Endpoint, EngineClient
from lsp_server.engine_http import API_KEY_VARIABLE, ENGINE_URL_VARIABLE
from lsp_server.languages import language_of
from lsp_server.rewrite import rewrite
from redraft import exit_codes, interrupts, outcome, render
from redraft.exit_codes import ExitCode, exit_code_of_error
from redraft.files import SourceFile, read_source, work_tree_of
from redraft.model_name import absolute_model
from redraft.target import find_span, parse_at, parse_lines, parse_symbol

HELP = "rewrite a function, a class or some lines of a file"
# What the engine takes (docs/engine-api.md); said here before anything is started.
MAX_TOKENS = 1_000_000
MAX_NAME_CHARS = 4096


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the `rewrite` command."""
    parser = subparsers.add_parser(
        "rewrite",
        help=HELP,
        description="Rewrite a part of FILE as the instruction says. Without --write, --diff or"
        " --json the diff is only shown.",
        epilog=exit_codes.EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--at",
        dest="target",
        type=parse_at,
        metavar="LINE[:COL]",
        help="the innermost function or class there, counted from 1, COL in characters",
    )
    where.add_argument(
        "--lines", dest="target", type=parse_lines, metavar="A-B", help="these lines, both included"
    )
    where.add_argument(
        "--symbol",
        dest="target",
        type=parse_symbol,
        metavar="NAME",
        help="a function, Class or Class.method",
    )
    parser.add_argument("--instruction", required=True, metavar="TEXT", help="what to change")
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model", type=_name, help="a name of `redraft models list`, a hub id, folder or file"
    )
    model.add_argument(
        "--draft-model", type=_name, metavar="MODEL", help="a smaller model that drafts"
    )
    model.add_argument("--no-draft", action="store_true", help="plain decoding, a token a pass")
    model.add_argument(
        "--no-workspace",
        action="store_true",
        help="draft nothing from the repository's files",
    )
    model.add_argument("--seed", type=_seed, default=0, metavar="N")
    model.add_argument(
        "--temperature", type=_temperature, default=0.0, metavar="T", help="0, greedy, by default"
    )
    model.add_argument("--max-tokens", type=_positive, metavar="N", help="most tokens to write")
    model.add_argument(
        "--engine-url",
        metavar="URL",
        help="unix:/path, or http://host:port/v1 of an OpenAI-compatible server"
        " (its key in REDRAFT_API_KEY); by default an engine of our own is started",
    )
    parser.add_argument("--write", action="store_true", help="write the result to FILE")
    parser.add_argument("--diff", action="store_true", help="print a unified diff")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    try:
        return _run(args)
    except RewriteError as error:
        if args.json:
            outcome.print_json({"status": "failed", "code": error.code, "message": error.message})
        else:
            outcome.say(f"redraft: {error.message}")
        return exit_code_of_error(error.code)
    except (KeyboardInterrupt, asyncio.CancelledError):
        message = "Interrupted; the file is as it was."
        if args.json:
            outcome.print_json({"status": "cancelled", "code": "interrupted", "message": message})
        else:
            outcome.say(f"redraft: {message}")
        return ExitCode.INTERRUPTED
    except Exception as error:
        if args.json and not isinstance(error, BrokenPipeError):
            message = f"A fault of redraft's own ({type(error).__name__}); the trace is on stderr."
            outcome.print_json({"status": "failed", "code": "internal", "message": message})
        raise


def _run(args: argparse.Namespace) -> int:
    if args.diff and (args.write or args.json):
        raise RewriteError("usage", "--diff cannot be combined with --write or --json.")
    source = read_source(args.file)
    request = _request(args, source)
    endpoint = None
    engine_url = args.engine_url or os.environ.get(ENGINE_URL_VARIABLE)
    if engine_url:
        endpoint = Endpoint(engine_url, os.environ.get(API_KEY_VARIABLE))
    live = sys.stdout.isatty() and not (args.json or args.diff)
    mode = outcome.Mode(write=args.write, json=args.json, live=live)
    reporter: render.Reporter
    if live:
        reporter = render.LiveReporter(Console(), source.text)
    else:
        reporter = render.LineReporter(Console(stderr=True))
    with reporter:
        result = asyncio.run(_rewrite(request, endpoint, reporter))
    interrupts.raise_on_signals()
    return outcome.finish(mode, source, request, result)


def _request(args: argparse.Namespace, source: SourceFile) -> RewriteRequest:
    if not args.instruction.strip():
        raise RewriteError("empty_instruction", "The instruction is empty: say what to change.")
    language = language_of(source.path.name)
    return RewriteRequest(
        text=source.text,
        span=find_span(source.text, language, args.target),
        language=language,
        instruction=args.instruction,
        options=GenerationOptions(
            # Another server's names are its own business.
            model=args.model if args.engine_url else absolute_model(args.model),
            draft_model=args.draft_model if args.engine_url else absolute_model(args.draft_model),
            draft=not args.no_draft,
            temperature=args.temperature,
            seed=args.seed,
            max_tokens=args.max_tokens,
        ),
        folders=() if args.no_workspace else work_tree_of(source.path),
    )


async def _rewrite(
    request: RewriteRequest, endpoint: Endpoint | None, reporter: render.Reporter
) -> RewriteResult:
    """Run to the end; Ctrl-C closes the connection first, which stops the engine's work."""
    task = asyncio.current_task()
    if task is not None:
        interrupts.cancel_on_signals(task)
    async with (
        contextlib.aclosing(EngineClient(endpoint)) as client,
        contextlib.aclosing(rewrite(request, client)) as events,
    ):
        async for event in events:
            if isinstance(event, RewriteResult):
                return event
            if isinstance(event, HunksUpdate):
                reporter.update(event)
            elif isinstance(event, Progress):
                reporter.progress(event)
    raise RewriteError("internal", "The rewrite ended without a result; run it again.")


def _positive(value: str) -> int:
    if not (re.fullmatch("[0-9]{1,7}", value) and 1 <= int(value) <= MAX_TOKENS):
        raise argparse.ArgumentTypeError(
            f"{value[:40]!r} is not a whole number from 1 to {MAX_TOKENS:,}"
        )
    return int(value)


def _seed(value: str) -> int:
    # The engine takes 64 bits, and Python reads no more than 4,300 digits.
    if not (re.fullmatch("-?[0-9]{1,19}", value) and -(2**63) <= int(value) < 2**63):
        raise argparse.ArgumentTypeError(f"{value[:40]!r} is not a whole number of 64 bits")
    return int(value)


def _name(value: str) -> str:
    if len(value) > MAX_NAME_CHARS or not value.isprintable():
        raise argparse.ArgumentTypeError(f"{value[:40]!r} is not a name of a model")
    return value


def _temperature(value: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(value) <= 2:
            return float(value)
    raise argparse.ArgumentTypeError(f"{value!r} is not a number from 0 to 2")
