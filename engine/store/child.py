"""Child processes that download: ending them, and reading their last word."""

from __future__ import annotations

import subprocess

_GRACE = 3.0  # seconds that a process has to end after it is told to
_MOST_ERROR = 300


def end_process(process: subprocess.Popen[bytes]) -> None:
    """End the process and wait until it is gone; does nothing when it has ended."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(_GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def last_meaningful_line(output: str) -> str:
    """The last line that says something: an error of pip where there is one, no warnings."""
    lines = [line.strip() for line in output.splitlines()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    said = [line for line in lines if line and not line.startswith(("WARNING", "[notice]"))]
    line = (errors or said or ["it says nothing"])[-1]
    return line.removeprefix("ERROR:").strip().rstrip(".")[:_MOST_ERROR]
