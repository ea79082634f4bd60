"""The memory side of `redraft doctor`: what is free, how much context it holds, and advice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import torch

from engine.prefix import default_budget

SHORT_CONTEXT = 4096
"""Tokens that an ordinary rewrite needs: a long function with its answer."""

RESERVE_BYTES = 1 << 30
"""What an editor and its language servers soon ask for; with less left memory is tight."""


class DeviceMemory(NamedTuple):
    """Memory of the device that holds the model, in bytes; both 0 where it cannot be told.

    Attributes:
        free: what can still be had.
        total: all there is.
    """

    free: int = 0
    total: int = 0


def device_memory(device: str, system: Path = Path("/")) -> DeviceMemory:
    """Return the memory of `device`.

    Args:
        device: as torch names it.
        system: root of the file system, where Linux tells of its memory.
    """
    if device.startswith("cuda"):
        return DeviceMemory(*torch.cuda.mem_get_info(device))
    if device != "cpu":
        return DeviceMemory()
    of_machine = _meminfo(system / "proc" / "meminfo")
    group = system / "sys" / "fs" / "cgroup"
    limit, used = _number(group / "memory.max"), _number(group / "memory.current")
    if limit is None or used is None or not 0 < limit < of_machine.total:
        return of_machine
    # A container may have less than the machine.
    return DeviceMemory(min(of_machine.free, max(limit - used, 0)), limit)


def resident_bytes() -> int:
    """Return this process' resident memory; 0 where the system does not tell (not Linux)."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory_advice(
    memory: DeviceMemory, kv_bytes_a_token: int, max_context: int, device: str
) -> list[str]:
    """Return what a person has to know of the memory left beside the loaded model.

    Args:
        memory: of the device, with the model loaded.
        kv_bytes_a_token: keys and values of one token.
        max_context: the model's window, in tokens.
        device: as torch names it.
    """
    if not memory.total or not kv_bytes_a_token:
        return []
    kept = default_budget(device)
    window = max_context * kv_bytes_a_token
    fits = memory.free // kv_bytes_a_token
    left = f"{memory.free / 1e9:.2f} GB of memory are left beside the model"
    if fits < min(SHORT_CONTEXT, max_context):
        return [
            f"Only {left}, enough for {fits:,} tokens of context: longer requests will not fit; "
            "close other programs or take a smaller model."
        ]
    if fits < max_context:
        return [
            f"{left}, enough for {fits:,} tokens of context; the model's whole window of "
            f"{max_context:,} would take {window / 1e9:.2f} GB and will not fit."
        ]
    if memory.free < window + kept + RESERVE_BYTES:
        return [
            f"Memory is tight: {left}; the model's whole window of {max_context:,} tokens takes "
            f"{window / 1e9:.2f} GB and what is kept of earlier prompts up to {kept / 1e9:.2f} GB."
        ]
    return []


def _meminfo(file: Path) -> DeviceMemory:
    try:
        lines = file.read_text().splitlines()
    except OSError:  # not Linux
        return DeviceMemory()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if ":" in line}
    return DeviceMemory(1024 * kib.get("MemAvailable", 0), 1024 * kib.get("MemTotal", 0))


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):  # no such group, or `max`
        return None
