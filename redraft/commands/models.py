"""`redraft models`: list, fetch and check models."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from redraft.exit_codes import ExitCode, exit_code_of_error

if TYPE_CHECKING:
    from engine.core import OnProgress, Progress

HELP = "list, fetch and check models"
_LINE_PAUSE = 5.0  # seconds between two lines of progress where stderr is no terminal


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    """Add the `models` command."""
    parser = subparsers.add_parser("models", help=HELP, description=_sentence(HELP))
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    actions.add_parser("list", help="show the known models", description="Show the known models.")
    for action, summary, what in (
        ("pull", "fetch a model and make it ready to load", "a known name, hub id or .gguf file"),
        ("path", "print where the file of a model is", "a known name"),
        ("verify", "compute the sum of a model's file anew", "a known name"),
    ):
        sub = actions.add_parser(action, help=summary, description=_sentence(summary))
        sub.add_argument("name", metavar="NAME", help=what)


def run(args: argparse.Namespace) -> int:
    """Run `redraft models`; 0 is success, 5 a trouble with a model, 130 an interruption."""
    try:
        from engine.core import Cancelled, EngineError

        action = {"list": _list, "pull": _pull, "path": _path, "verify": _verify}[args.action]
        try:
            return action(args)
        except EngineError as error:
            _say(error.message)
            return exit_code_of_error(error.code)
        except Cancelled:
            return ExitCode.INTERRUPTED
    except ModuleNotFoundError as error:
        _say(
            f"The engine is not installed ({error.name} is missing); pip install 'redraft[engine]'."
        )
        return ExitCode.MODEL
    except KeyboardInterrupt:
        _say("Interrupted; the same command goes on where this one was.")
        return ExitCode.INTERRUPTED


def _list(_: argparse.Namespace) -> int:
    from engine import store

    width = max(len(model.name) for model in store.KNOWN_MODELS)
    print(f"{'NAME':<{width}}  {'SIZE':>7}  {'CACHED':<6}  USED AS")
    for model in store.KNOWN_MODELS:
        cached = "yes" if store.is_cached(model.name) else "no"
        size = f"{model.size / 1e6:.0f} MB"
        print(f"{model.name:<{width}}  {size:>7}  {cached:<6}  {model.used_as}")
    return ExitCode.DONE


def _pull(args: argparse.Namespace) -> int:
    from engine import store

    with _progress(args.name) as on_progress:
        if store.find_known(args.name) is not None:
            store.pull(args.name, on_progress, _never)
        folder = store.resolve(args.name, on_progress, _never)
    print(folder)
    return ExitCode.DONE


def _path(args: argparse.Namespace) -> int:
    from engine import store

    file = store.path(args.name)
    if not file.is_file():
        _say(f"{args.name} is not in the cache; fetch it with `redraft models pull {args.name}`.")
        return ExitCode.MODEL
    print(file)
    return ExitCode.DONE


def _verify(args: argparse.Namespace) -> int:
    from engine import store

    with _progress(args.name) as on_progress:
        verified = store.verify(args.name, on_progress, _never)
    if verified.is_whole:
        print(f"{verified.path}: the sha256 is right ({verified.found}).")
        return ExitCode.DONE
    _say(
        f"{verified.path} is damaged: its sha256 is {verified.found[:12]}... instead of "
        f"{verified.expected[:12]}...; run `redraft models pull {args.name}` to fetch it anew."
    )
    return ExitCode.MODEL


@contextmanager
def _progress(name: str) -> Iterator[OnProgress]:
    """A bar on a terminal, a line now and then elsewhere; both on stderr."""
    if sys.stderr.isatty():
        with _bar(name) as on_progress:
            yield on_progress
    else:
        yield _Lines(name)


@contextmanager
def _bar(name: str) -> Iterator[OnProgress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[detail]}", markup=False),
    )
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(name, total=1.0, detail="")

        def on_progress(progress: Progress) -> None:
            label = f"{progress.phase} {name}"
            # Without a fraction the bar moves to and fro; with total None rich does that.
            total = None if progress.fraction is None else 1.0
            bars.update(
                task,
                description=label,
                total=total,
                completed=progress.fraction or 0.0,
                detail=progress.detail,
            )

        yield on_progress


class _Lines:
    """Prints progress as lines: each new phase at once, then one every few seconds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._phase = ""
        self._next = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.phase == self._phase and now < self._next:
            return
        self._phase = progress.phase
        self._next = now + _LINE_PAUSE
        print(f"{progress.phase} {self._name}: {progress.detail}", file=sys.stderr, flush=True)


def _never() -> bool:
    return False  # Ctrl-C comes as KeyboardInterrupt


def _say(message: str) -> None:
    print(f"redraft: {message}", file=sys.stderr)


def _sentence(words: str) -> str:
    return words[0].upper() + words[1:] + "."
