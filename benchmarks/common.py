"""What all benchmarks share: medians with spread, the machine in words, the edits."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODEL = "qwen2.5-coder-1.5b-instruct"


def spread(values: Sequence[float], unit: str = "", digits: int = 2) -> str:
    """Return the median, and the least and largest value in brackets."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f}{unit} ({low:.{digits}f} to {high:.{digits}f})"


def machine() -> str:
    """Return this machine in a line: cores, kind of processor, torch and its threads."""
    import torch

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    vector = torch.backends.cpu.get_cpu_capability()
    return (
        f"{platform.system()} {platform.machine()}, {usable} cores with {vector}, "
        f"torch {torch.__version__}, load {os.getloadavg()[0]:.1f} when it began"
    )


def edits() -> list[dict[str, Any]]:
    """Return the development edits, `dev.jsonl` of REDRAFT_EDITS or of the shared folder.

    Raises:
        SystemExit: the file is not there.
    """
    folder = os.environ.get("REDRAFT_EDITS") or Path(__file__).parents[2] / "shared" / "edits"
    file = Path(folder) / "dev.jsonl"
    if not file.is_file():
        raise SystemExit(f"{file.name} is missing; set REDRAFT_EDITS to the folder that holds it.")
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]
