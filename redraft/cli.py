"""The command line `redraft`: finds the command, imports only that one, runs it."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from redraft import __version__
from redraft.exit_codes import EXPLANATION, ExitCode
from redraft.interrupts import raise_on_signals

_COMMANDS = {
    "rewrite": "rewrite a function, a class or some lines of a file",
    "models": "list, fetch and check models",
    "engine": "run, show or stop the engine",
    "doctor": "measure what passes cost on this machine",
}


class UsageError(Exception):
    """The command line is wrong.

    Attributes:
        message: what is wrong, in a few words.
        usage: how the command is used.
    """

    def __init__(self, message: str, usage: str) -> None:
        super().__init__(message)
        self.message = message
        self.usage = usage


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` instead of printing, so that `--json` can be obeyed."""

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`."""
        raise UsageError(message, self.format_usage())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; docs/cli.md lists the codes."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    try:
        raise_on_signals()
        code = _dispatch(arguments)
        sys.stdout.flush()
        return code
    except UsageError as error:
        return _usage(error, as_json=as_json)
    except KeyboardInterrupt:
        # Commands handle it themselves; this one came while they were being imported.
        if as_json:
            _print_json("cancelled", "interrupted", "Interrupted before anything was done.")
        else:
            print("redraft: Interrupted.", file=sys.stderr)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has gone. Python would complain again when it
        # flushes stdout at exit, so give it somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.FAILURE


def _dispatch(arguments: list[str]) -> int:
    parser = Parser(
        prog="redraft",
        description="Rewrite code in place with your own model.",
        epilog=EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"redraft {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    module = None
    for name, summary in _COMMANDS.items():
        if name == chosen:
            module = importlib.import_module(f"redraft.commands.{name}")
            module.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=summary)
    args = parser.parse_args(arguments)
    if module is None:  # not reached: a command is required and the parser knows them all
        raise UsageError("name a command", parser.format_usage())
    return int(module.run(args))


def _usage(error: UsageError, as_json: bool) -> int:
    if as_json:
        _print_json("failed", "usage", f"The command line is wrong: {error.message}.")
    else:
        print(f"{error.usage.rstrip()}\nredraft: {error.message}", file=sys.stderr)
    return ExitCode.USAGE


def _print_json(status: str, code: str, message: str) -> None:
    import json

    print(json.dumps({"status": status, "code": code, "message": message}))


if __name__ == "__main__":
    sys.exit(main())
