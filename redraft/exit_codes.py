"""The exit codes of the command line and which error gets which."""

from __future__ import annotations

from enum import IntEnum

from lsp_server.core import Status


class ExitCode(IntEnum):
    """How a command ended; docs/cli.md says the same for people."""

    DONE = 0
    FAILURE = 1
    USAGE = 2
    TARGET = 3
    FILE = 4
    MODEL = 5
    NOT_APPLIED = 6
    INTERRUPTED = 130


EXPLANATION = """\
exit codes:
  0    done, also when there was nothing to change
  1    the engine or something else failed
  2    the command line is wrong
  3    no such symbol, function, line or code in the file, or too much of it
  4    the file cannot be read or written, or is not a text redraft can edit
  5    the model cannot be found, fetched or loaded
  6    the answer was not applied: cut off, empty, or refused
  130  interrupted
"""

# Codes that are not here are failures of the engine or of the way to it.
_OF_ERROR = {
    "usage": ExitCode.USAGE,
    "empty_instruction": ExitCode.USAGE,
    "instruction_too_long": ExitCode.USAGE,
    "bad_instruction": ExitCode.USAGE,
    "invalid_engine_url": ExitCode.USAGE,
    "no_span": ExitCode.TARGET,
    "parse_timeout": ExitCode.TARGET,
    "no_symbol": ExitCode.TARGET,
    "ambiguous_symbol": ExitCode.TARGET,
    "empty_selection": ExitCode.TARGET,
    "bad_selection": ExitCode.TARGET,
    "line_past_end": ExitCode.TARGET,
    "context_length_exceeded": ExitCode.TARGET,
    "file_missing": ExitCode.FILE,
    "file_is_folder": ExitCode.FILE,
    "file_not_regular": ExitCode.FILE,
    "file_unreadable": ExitCode.FILE,
    "file_not_text": ExitCode.FILE,
    "file_changed": ExitCode.FILE,
    "file_unwritable": ExitCode.FILE,
    "file_no_space": ExitCode.FILE,
    "too_large": ExitCode.FILE,
    "model_not_found": ExitCode.MODEL,
    "unsupported_model": ExitCode.MODEL,
    "download_failed": ExitCode.MODEL,
    "download_damaged": ExitCode.MODEL,
    "draft_model_mismatch": ExitCode.MODEL,
    "disk_full": ExitCode.MODEL,
}

_OF_STATUS = {
    Status.OK: ExitCode.DONE,
    Status.UNCHANGED: ExitCode.DONE,
    Status.EMPTY: ExitCode.NOT_APPLIED,
    Status.CUT_OFF: ExitCode.NOT_APPLIED,
    Status.REFUSED: ExitCode.NOT_APPLIED,
    Status.CANCELLED: ExitCode.INTERRUPTED,
}


def exit_code_of_error(code: str) -> ExitCode:
    """The exit code for the `code` of a `RewriteError` or an engine error."""
    return _OF_ERROR.get(code, ExitCode.FAILURE)


def exit_code_of_status(status: Status) -> ExitCode:
    """The exit code for the status of a `RewriteResult`."""
    return _OF_STATUS.get(status, ExitCode.FAILURE)
