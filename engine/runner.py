"""What the verify loop knows of a model: tokens in, logits out, a KV cache to roll back.

A pass is *exact* when a row's logits do not depend on the other rows of the pass. Then a
draft can never change a token. A runner either computes every row the same way whatever
stands beside it (engine/int8), or gives every pass one fixed shape (engine/eager.py,
engine/cuda); where the fixed shape costs speed, a sequence may be run without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import torch

from engine.kv_cache import KVCache
from engine.sampling.accept import Verdict


class Runner(Protocol):
    """One model on one device.

    Attributes:
        name: what the statistics call it.
        max_context: most tokens that a sequence can hold.
        vocabulary: columns of the logits.
        prefill_chunk: tokens a prefill chunk; chunks lie on a fixed grid of absolute
            positions, so that a reused prefix holds the values that a fresh one would.
        max_draft: longest draft that one pass can verify.
        weight_bytes: bytes of weights that every pass reads.
        exact: passes are exact unless a sequence asks for the faster ones.
        trees: `verify` takes token trees; where not, it is given chains only.
        notice: a sentence for people about how this model is served, or "".
    """

    name: str
    device: str
    dtype: str
    max_context: int
    vocabulary: int
    prefill_chunk: int
    max_draft: int
    weight_bytes: int
    exact: bool
    trees: bool
    notice: str

    def new_cache(self, capacity: int, exact: bool = True) -> KVCache:
        """Return an empty cache with room for `capacity` tokens (it grows when it must).

        Its `exact` says how passes on it are run, its `grid` where a kept prefix may be cut.
        """
        ...

    def prefill(self, cache: KVCache, tokens: Sequence[int]) -> Iterator[float]:
        """Append `tokens`; yield how many are done, several times a chunk.

        At each yield the caller may stop: a chunk that is not whole leaves no trace.
        """
        ...

    def verify(
        self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int] = ()
    ) -> torch.Tensor:
        """Append `tokens`; return logits `[len(tokens), vocabulary]`, row i following token i.

        With `parents` (as in `drafters.core.Draft`, for all tokens but the first) each row
        stands behind the one that it follows and sees no row of another branch; an exact
        pass then gives it the logits and states that it has in a pass of its own path. The
        cache holds all rows in the order given, until `KVCache.keep` is told the path.
        """
        ...

    def probe(self) -> Callable[[int, int], float]:
        """Return what times a pass of so many rows over so many tokens, in seconds."""
        ...


@runtime_checkable
class GreedyRunner(Protocol):
    """A runner that accepts greedily where the logits are, and brings back only the verdict."""

    def verify_greedy(
        self, cache: KVCache, tokens: Sequence[int], parents: Sequence[int] = ()
    ) -> Verdict:
        """Append the last token and a draft; the caller rolls back what was refused."""
        ...
