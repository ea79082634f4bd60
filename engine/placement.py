"""Where a model runs: one device, or spread over the GPUs of this machine."""

from __future__ import annotations

from typing import NamedTuple

import torch

AUTO = "auto"


class Placement(NamedTuple):
    """A device and, for a model that is spread, what transformers is told about it.

    Attributes:
        device: where the model runs, or where its first layers do.
        device_map: `auto`, or None for one device.
    """

    device: torch.device
    device_map: str | None


def placed(wanted: str | None) -> Placement:
    """Return where to run a model.

    Args:
        wanted: `cpu`, `cuda`, `cuda:1`, `mps`, ...; None for the fastest kind of device;
            `auto` to spread it over all GPUs, where there are several.
    """
    if wanted == AUTO and torch.cuda.is_available() and torch.cuda.device_count() > 1:
        return Placement(torch.device("cuda"), AUTO)
    if wanted in (None, AUTO):
        return Placement(torch.device(best_device()), None)
    return Placement(torch.device(wanted), None)


def best_device() -> str:
    """Return the fastest kind of device here."""
    if torch.cuda.is_available():
        return "cuda"
    if torch.backends.mps.is_available():
        return "mps"
    return "cpu"
