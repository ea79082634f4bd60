"""What a pass costs on this device: seconds for each window size and context length."""

from __future__ import annotations

from typing import NamedTuple


class PassPoint(NamedTuple):
    """The median time of a pass.

    Attributes:
        window: rows of the pass.
        context: tokens in the KV cache before it.
        seconds: median.
        samples: how many passes the median is of.
    """

    window: int
    context: int
    seconds: float
    samples: int
