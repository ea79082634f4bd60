"""`python -m redraft.demo`: one rewrite through the real language server, with drafts and without.

It never writes the example: the edit is applied to the headless editor's text only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from pygls.exceptions import JsonRpcException
from rich.console import Console
from rich.text import Text

from lsp_server.core import RewriteError, Span
from lsp_server.languages import language_of
from redraft import render
from redraft.demo.client import HeadlessEditor, ServerGone
from redraft.demo.view import Run, View, table
from redraft.files import SourceFile, read_source
from redraft.target import Symbol, find_span

_MODEL = "qwen2.5-coder-1.5b-instruct"
_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def main(argv: list[str] | None = None) -> int:
    """Run the demo; 0 when both texts are equal and everything worked."""
    args = _arguments(argv)
    console = Console(highlight=False)
    try:
        source = read_source(_short(args.file))
        symbol, instruction = _task(args)
        span = find_span(source.text, language_of(source.path.name), Symbol(symbol))
        if not args.engine_url:
            _pull(args.model)
        return asyncio.run(_demo(console, args, source, span, instruction))
    except (RewriteError, JsonRpcException, ServerGone, OSError) as error:
        message = getattr(error, "message", None) or str(error)
        Console(stderr=True).print(Text(f"The demo failed: {message}", style="red"))
        return 1
    except KeyboardInterrupt:
        return 130


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="redraft.demo", description=__doc__)
    parser.add_argument("--model", default=_MODEL, help="default: %(default)s")
    parser.add_argument("--file", default=str(_EXAMPLES / "inventory.py"))
    parser.add_argument("--symbol", help="default: as examples/instructions.json says")
    parser.add_argument("--instruction", help="default: as examples/instructions.json says")
    parser.add_argument("--engine-url", help="use this engine, not one of our own")
    return parser.parse_args(argv)


def _task(args: argparse.Namespace) -> tuple[str, str]:
    """The symbol and the instruction, from the command line or from the examples' list."""
    known: dict[str, dict[str, str]] = {}
    listed = _EXAMPLES / "instructions.json"
    if listed.is_file():
        known = json.loads(listed.read_text(encoding="utf-8"))
    usual = known.get(Path(args.file).name, {})
    symbol = args.symbol or usual.get("symbol")
    instruction = args.instruction or usual.get("instruction")
    if not symbol or not instruction:
        raise RewriteError("usage", "name --symbol and --instruction for a file of your own.")
    return symbol, instruction


def _short(file: str) -> str:
    """The path from the current folder where the file is below it."""
    path = Path(file).absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _pull(model: str) -> None:
    """Fetch the model as `redraft models pull` does; paths and hub ids are the engine's work."""
    from engine.store.known import find_known

    if find_known(model) is None:
        return
    from redraft.cli import main as redraft

    if redraft(["models", "pull", model]) != 0:
        raise RewriteError("download_failed", f"{model} could not be fetched.")


async def _demo(
    console: Console, args: argparse.Namespace, source: SourceFile, span: Span, instruction: str
) -> int:
    console.print(Text(f"{source.shown}: {span.name}\n{instruction}\n"), soft_wrap=True)
    options = {"model": args.model}
    if args.engine_url:
        options["engineUrl"] = args.engine_url
    view = View(console, source.text)
    async with HeadlessEditor(view.event, options) as editor:
        try:
            code = await _both(console, editor, view, source, span, instruction)
        except ServerGone:
            console.print(Text(editor.last_errors), style="dim", soft_wrap=True)
            raise
    if not args.engine_url:
        console.print(
            "The engine stays for the next request and stops by itself when idle;"
            " `redraft engine stop` stops it now.",
            soft_wrap=True,
        )
    return code


async def _both(
    console: Console,
    editor: HeadlessEditor,
    view: View,
    source: SourceFile,
    span: Span,
    instruction: str,
) -> int:
    language = language_of(source.path.name)

    editor.open(source.path, language, source.text)
    console.print("With drafts:", style="bold")
    drafted, job = await _run(editor, view, span, instruction, draft=True)
    view.show_rest(drafted.hunks)
    console.print(Text(render.statistics_line(drafted.stats) + "\n"), soft_wrap=True)
    expected = source.text[: span.start] + drafted.text + source.text[span.end :]
    accepted = await editor.accept(job)
    applied = bool(accepted.applied) and editor.document.text == expected
    editor.close()

    editor.open(source.path, language, source.text)
    console.print("The same request without drafts, a token a pass:", style="bold")
    view.prints_rows = False
    plain, job = await _run(editor, view, span, instruction, draft=False)
    console.print(Text(render.statistics_line(plain.stats) + "\n"), soft_wrap=True)
    await editor.reject(job)
    editor.close()

    same = drafted.text == plain.text
    console.print(table(drafted, plain))
    console.print(f"Identical text: {'yes' if same else 'NO'}")
    console.print(f"Edit applied to the editor's text: {'yes' if applied else 'NO'}")
    console.print(
        Text(
            f"{source.shown} itself was not changed;"
            " `redraft rewrite ... --write` would have written it."
        ),
        soft_wrap=True,
    )
    return 0 if same and applied else 1


async def _run(
    editor: HeadlessEditor, view: View, span: Span, instruction: str, draft: bool
) -> tuple[Run, str]:
    started = time.perf_counter()
    with view:
        result = await editor.rewrite(span, instruction, draft)
    seconds = time.perf_counter() - started
    if result.status != "ok":
        message = result.message or f"the rewrite ended as {result.status}"
        raise RewriteError(result.status, message)
    first = view.first_hunk_at
    stats = result.stats._asdict() if hasattr(result.stats, "_asdict") else {}
    waited = None if first is None else first - started
    return Run(result.text, editor.hunks_of(result), stats, seconds, waited), result.jobId


if __name__ == "__main__":
    sys.exit(main())
