"""What all benchmarks share: medians with spread, the machine in words, the edits, JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

MODEL = "qwen2.5-coder-1.5b-instruct"


class Memory(NamedTuple):
    """Memory of a process in bytes; 0 where the system does not tell (not Linux).

    Attributes:
        resident: now; what is mapped from files and was touched counts.
        peak: the most so far.
    """

    resident: int = 0
    peak: int = 0


def spread(values: Sequence[float], unit: str = "", digits: int = 2) -> str:
    """Return the median, and the least and largest value in brackets."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:.{digits}f}{unit} ({low:.{digits}f} to {high:.{digits}f})"


def verdict(reached: bool, aim: str) -> str:
    """Return the aim with the word whether it was reached."""
    return f"aim: {aim}: {'reached' if reached else 'MISSED'}"


def machine() -> str:
    """Return this machine in a line: cores, kind of processor, torch and its threads."""
    import torch

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    vector = torch.backends.cpu.get_cpu_capability()
    return (
        f"{platform.system()} {platform.machine()}, {usable} cores with {vector}, "
        f"torch {torch.__version__}, load {os.getloadavg()[0]:.1f} when it began"
    )


def memory_of(process: int | str = "self") -> Memory:
    """Return the memory of a process by its number."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return Memory()
    kib = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return Memory(1024 * int(kib.get("VmRSS", 0)), 1024 * int(kib.get("VmHWM", 0)))


def cpu_seconds_of(process: int | str = "self") -> float:
    """Return the seconds of cores that a process has used; 0 where the system does not tell."""
    try:
        # The name in brackets may hold anything, so what follows it is counted.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def part(text: str) -> tuple[int, int]:
    """Return I and N of `I/N`, the type of an option `--part`.

    Raises:
        ValueError: there is no such part.
    """
    index, parts = map(int, text.split("/"))
    if not 1 <= index <= parts:
        raise ValueError(f"{text} is no part")
    return index, parts


def part_of(items: Sequence[T], chosen: tuple[int, int]) -> Sequence[T]:
    """Return part I of N of `items`; together the parts are all of them, each once."""
    index, parts = chosen
    return items[(index - 1) * len(items) // parts : index * len(items) // parts]


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


class Report:
    """What a benchmark tells: lines as they come, or with `--json` one object at the end.

    Args:
        options: as parsed; `json` is looked at.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._as_json = bool(options.json)
        self._figures: dict[str, Any] = {}
        self.figure("machine", machine())
        self.say(self._figures["machine"])

    @staticmethod
    def add_option(parser: argparse.ArgumentParser) -> None:
        """Add `--json`."""
        parser.add_argument(
            "--json", action="store_true", help="one JSON object; the lines go to stderr"
        )

    def say(self, line: str) -> None:
        """Print a line for people at once."""
        print(line, file=sys.stderr if self._as_json else sys.stdout, flush=True)

    def figure(self, name: str, value: Any) -> None:
        """Keep a figure for the object; a sequence of numbers with its median."""
        if isinstance(value, Sequence) and not isinstance(value, str) and value:
            value = {"median": statistics.median(value), "values": list(value)}
        self._figures[name] = value

    def figures(self, values: Mapping[str, Any]) -> None:
        """Keep several figures."""
        for name, value in values.items():
            self.figure(name, value)

    def close(self) -> None:
        """Print the object, where it was asked for."""
        if self._as_json:
            print(json.dumps(self._figures))
