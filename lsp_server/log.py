"""Logging to stderr that cannot leak source text.

pygls puts whole messages into its log records, and exceptions can quote what they
choked on. So a record of another library is reduced to its template, and a trace is
reduced to types and places.
"""

from __future__ import annotations

import logging
import sys
import traceback
from types import TracebackType

_OURS = "lsp_server"


class SafeFormatter(logging.Formatter):
    """Formats our own records in full and all others without their arguments."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and after it the places of an exception where there is one."""
        text = record.getMessage() if record.name.startswith(_OURS) else str(record.msg)
        line = f"{self.formatTime(record)} {record.levelname.lower()} {record.name}: {text[:500]}"
        if record.exc_info and record.exc_info[0] is not None:
            kind, _, trace = record.exc_info
            line += f"\n  {kind.__name__} at {_places(trace)}"
        return line


def _places(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)[-8:]
    return " < ".join(
        f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}"
        for frame in reversed(frames)
    )


def set_up_logging(level: str) -> None:
    """Send log records of this level and above to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(SafeFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger(_OURS).setLevel(level.upper())
    # At INFO pygls logs every body; at WARNING every cancel that comes too late.
    logging.getLogger("pygls").setLevel(logging.ERROR)
    logging.getLogger("httpx").setLevel(logging.WARNING)
