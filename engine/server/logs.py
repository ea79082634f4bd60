"""The engine's log: bounded, private, and without a word of anybody's source text."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import traceback
from logging.handlers import RotatingFileHandler
from pathlib import Path

LOG_BYTES = 1024 * 1024
OUTPUT_BYTES = 1024 * 1024

logger = logging.getLogger("engine.server")

# Messages of these come from the machine, never from a request's text.
_SAFE_MESSAGES = (OSError, ImportError, RuntimeError)


class _PrivateRotatingFile(RotatingFileHandler):
    """A rotating log that only its owner can read."""

    def _open(self):
        stream = super()._open()
        with contextlib.suppress(OSError):
            os.chmod(self.baseFilename, 0o600)
        return stream


def start_log(folder: Path) -> logging.Handler:
    """Log to `folder/engine.log`: two files of at most 1 MiB each, mode 0600."""
    handler = _PrivateRotatingFile(
        folder / "engine.log", maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8"
    )
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    for name in ("engine", "drafters"):
        logging.getLogger(name).setLevel(logging.INFO)
    return handler


def log_failure(doing: str, error: BaseException) -> None:
    """Log where an error came from.

    The message of an error may quote the text it failed on, so it is logged only for
    kinds of errors whose messages speak of the machine.
    """
    lines = [f"failed while {doing}"]
    link: BaseException | None = error
    for _ in range(5):
        if link is None:
            break
        message = str(link).splitlines()[:1] if isinstance(link, _SAFE_MESSAGES) else []
        lines.append(": ".join([type(link).__name__, *(m[:300] for m in message)]))
        lines.extend(frame.rstrip() for frame in traceback.format_tb(link.__traceback__))
        link = link.__cause__ or link.__context__
    logger.error("\n".join(lines))


def bound_output() -> None:
    """Empty the file behind stderr when it has grown beyond 1 MiB.

    The engine runs detached with its output in a file (opened for appending), and
    libraries may write there for as long as it lives.
    """
    with contextlib.suppress(OSError):
        status = os.fstat(2)
        if stat.S_ISREG(status.st_mode) and status.st_size > OUTPUT_BYTES:
            os.ftruncate(2, 0)
