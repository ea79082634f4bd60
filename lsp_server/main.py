"""`redraft-lsp`: the language server over stdin and stdout."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import threading

from lsp_server.log import set_up_logging

# From the moment that the end is decided; after it the process ends whatever it does.
LAST_SECONDS = 1.2


def main(arguments: list[str] | None = None) -> int:
    """Serve one client and return the exit code: 0 after `shutdown` and `exit`, else 1."""
    options = _parse(arguments)
    set_up_logging(options.log_level)
    input_descriptor, output_descriptor = take_over_stdio()
    # Imported late, so that an import that prints cannot reach the client.
    from lsp_server.server import RedraftServer

    return asyncio.run(_serve(RedraftServer(), input_descriptor, output_descriptor))


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="redraft-lsp", description="Rewrites code in place, from any editor that speaks LSP."
    )
    parser.add_argument("--stdio", action="store_true", help="the only transport, and the default")
    parser.add_argument(
        "--log-level",
        default=os.environ.get("REDRAFT_LOG", "warning"),
        type=str.lower,
        choices=("debug", "info", "warning", "error"),
        help="what goes to stderr; never any source text (default: %(default)s)",
    )
    parser.add_argument("--version", action="version", version=_version())
    # Editors add flags of their own, such as --clientProcessId.
    return parser.parse_known_args(arguments)[0]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("redraft")
    except PackageNotFoundError:
        return "0"


def take_over_stdio() -> tuple[int, int]:
    """Keep the client's pipes for the protocol alone, and return their descriptors.

    Whatever else in this process reads stdin then finds nothing, and what it prints goes
    to stderr, where it cannot break the stream.
    """
    input_descriptor, output_descriptor = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return input_descriptor, output_descriptor


async def _serve(server: object, input_descriptor: int, output_descriptor: int) -> int:
    from lsp_server.server import RedraftServer
    from lsp_server.transport import Reader, Writer

    assert isinstance(server, RedraftServer)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_on_loop_fault)
    server.stopped = loop.create_future()
    with contextlib.suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGTERM, server.stop, 1)
        loop.add_signal_handler(signal.SIGINT, server.stop, 1)
    writer = Writer(output_descriptor, lambda: server.stop(1))
    server.protocol.set_writer(writer)
    Reader(input_descriptor, server.protocol.receive, lambda: server.stop(1))
    code = await server.stopped
    last = threading.Timer(LAST_SECONDS, os._exit, (code,))
    last.daemon = True
    last.start()
    await server.end_work()
    writer.close(seconds=0.3)
    return code


def _on_loop_fault(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    # anyio's Unix sockets report themselves ready to a future that was just cancelled.
    # It is harmless, and every cancelled rewrite would put it into the user's log.
    if isinstance(context.get("exception"), asyncio.InvalidStateError):
        return
    loop.default_exception_handler(context)


if __name__ == "__main__":
    sys.exit(main())
