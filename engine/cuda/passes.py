"""One pass of a fixed shape: so many rows over so many slots, with acceptance at its end.

Everything in `run` works on tensors that stay where they are, so that it can be captured
once and replayed: the rows' ids and the place of the first are written into buffers, and
logits and verdict are read from buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol

import torch

from engine.cuda.attention import BLOCK
from engine.cuda.views import Views, packed, unpacked
from engine.cuda.workspace import Workspace
from engine.layers import Rotation
from engine.sampling.accept import Verdict, greedy_path
from engine.tree import Tree, children_of

RunLayer = Callable[
    [Any, torch.Tensor, Rotation, "Slots", torch.Tensor, "Views | None"], torch.Tensor
]
"""Maps hidden states through one layer, over slots, with a mask `[rows, slots]` and views."""


class Slots(NamedTuple):
    """Where a pass writes and what it reads; takes the place of a cache in a layer.

    Attributes:
        states: `[2, layers, kv_heads, slots, head_dim]`, the workspace up to the rung.
        rows: int64 `[rows]`, the slot of each row.
    """

    states: torch.Tensor
    rows: torch.Tensor

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write states `[1, kv_heads, rows, head_dim]`; return all slots of the layer."""
        self.states[0, layer_idx].index_copy_(1, self.rows, keys[0])
        # A weight of 0 does not hide an infinity, which a refused row may leave behind.
        self.states[1, layer_idx].index_copy_(1, self.rows, values[0].nan_to_num())
        return self.states[0, layer_idx][None], self.states[1, layer_idx][None]


class Capture(Protocol):
    """Turns work on static tensors into something that repeats it."""

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        """Run `work` at least once; return what repeats it."""
        ...


class StaticPass:
    """A pass of `rows` rows over the first `slots` slots of a workspace.

    Args:
        model: a transformers causal LM of the common shape.
        workspace: whose resident sequence the pass is of.
        rows, slots: the shape.
        run_layer: runs one of its layers.
        capture: makes it repeatable.
        views: side branches of the token trees that it runs; 0 for a pass over chains.
        with_head: go on to logits and verdict; a prefill needs neither.
    """

    def __init__(
        self,
        model: Any,
        workspace: Workspace,
        rows: int,
        slots: int,
        run_layer: RunLayer,
        capture: Capture,
        views: int = 0,
        with_head: bool = True,
    ) -> None:
        device = workspace.states.device
        self._model = model
        self._states = workspace.states[:, :, :, :slots]
        self._run_layer = run_layer
        self._with_head = with_head
        self._all_slots = torch.arange(slots, device=device)
        self._rows = torch.arange(rows, device=device)
        self._slots = slots
        self._views = views
        # One buffer, so that one copy brings everything in: start, number of rows, ids, tree.
        size = 2 + rows + (rows * (2 + views) if views else 0)
        self._input = torch.zeros(size, dtype=torch.long, device=device)
        pinned = device.type == "cuda"
        self._input_here = torch.zeros(size, dtype=torch.long, pin_memory=pinned)
        self._logits = torch.empty(0)
        self._verdict = torch.empty(0)
        self._verdict_here = torch.zeros(2 * rows + 1, dtype=torch.float64, pin_memory=pinned)
        self._done = torch.cuda.Event() if device.type == "cuda" else None
        self._device = device
        with on(device):
            self._repeat = capture(self._work)

    def read(self, start: int, tokens: Sequence[int]) -> None:
        """Run `tokens` at slots `start`, `start + 1`, ... for their keys and values alone."""
        with on(self._device):
            self._begin(start, tokens, None)

    def run(self, start: int, tokens: Sequence[int], tree: Tree | None = None) -> torch.Tensor:
        """Run `tokens` at slots `start`, `start + 1`, ...; return a row of logits for each."""
        with on(self._device):
            self._begin(start, tokens, tree)
            return self._logits[: len(tokens)].clone()

    def run_greedy(
        self,
        start: int,
        tokens: Sequence[int],
        tree: Tree | None = None,
        parents: Sequence[int] = (),
    ) -> Verdict:
        """Run the last token and a draft; return what greedy acceptance gives.

        One copy brings the verdict here, and its arrival is all that is waited for.
        """
        with on(self._device):
            self._begin(start, tokens, tree)
            self._verdict_here.copy_(self._verdict, non_blocking=True)
            if self._done is not None:
                self._done.record()
                self._done.synchronize()
        rows = len(self._rows)
        if tree is not None:
            return self._walked(tokens[1:], parents)
        accepted = int(self._verdict_here[0])
        emitted = slice(1, accepted + 2)
        margins = slice(1 + rows, accepted + 2 + rows)
        return Verdict(
            [int(token) for token in self._verdict_here[emitted].tolist()],
            accepted,
            self._verdict_here[margins].tolist(),
            list(range(accepted)),
        )

    def _walked(self, drafted: Sequence[int], parents: Sequence[int]) -> Verdict:
        """Accept the path through a tree; the target's own token at each row is here."""
        said, margins = self._verdict_here[1:].view(2, -1).tolist()
        chosen = [int(token) for token in said]
        path = greedy_path(chosen, drafted, children_of(parents, len(drafted)))
        rows = [0, *(node + 1 for node in path)]
        return Verdict(
            [chosen[row] for row in rows], len(path), [margins[row] for row in rows], path
        )

    def _begin(self, start: int, tokens: Sequence[int], tree: Tree | None) -> None:
        # The buffer here is free: the pass that read it last has been waited for by whoever
        # used its result, or stands before this one's copy in the same stream.
        if self._done is not None:
            self._done.synchronize()
        self._input_here[0], self._input_here[1] = start, len(tokens)
        self._input_here[2 : 2 + len(tokens)] = torch.tensor(list(tokens))
        if tree is not None:
            rows = len(self._rows)
            self._input_here[2 + rows :] = torch.tensor(packed(tree, rows, self._views))
        self._input.copy_(self._input_here, non_blocking=True)
        self._repeat()
        if self._done is not None:
            self._done.record()

    def _work(self) -> None:
        rows = len(self._rows)
        start, count, ids = self._input[0], self._input[1], self._input[2 : 2 + rows]
        decoder = self._model.model
        with torch.inference_mode():
            slots = Slots(self._states, start + self._rows)
            depths, views = self._rows, None
            if self._views:
                tree = self._input[2 + rows :]
                depths, views = unpacked(tree, start, rows, self._slots, BLOCK)
            positions = start + depths
            hidden = decoder.embed_tokens(ids[None])
            rotation = decoder.rotary_emb(hidden, positions[None])
            sees = self._all_slots <= positions[:, None]
            for layer in decoder.layers:
                hidden = self._run_layer(layer, hidden, rotation, slots, sees, views)
            if not self._with_head:
                return
            logits = self._model.lm_head(decoder.norm(hidden))[0]
            verdict = packed_verdict(logits, ids, count)
        self._logits, self._verdict = logits, verdict


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Make `device` the one whose streams are meant; a machine may have several GPUs.

    Graphs and events belong to the current stream of the current device, which is the
    first GPU unless somebody says otherwise.
    """
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def packed_verdict(logits: torch.Tensor, ids: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    """Return greedy acceptance as one vector of float64, which holds token ids exactly.

    Args:
        logits: `[rows, vocabulary]`.
        ids: int64 `[rows]`: the last token, the draft, and filling.
        count: how many of the rows are real.

    Returns:
        `[1 + 2 * rows]`: how many drafted tokens are accepted, the target's own token at
        each row, and the distance of the two best logits there, `inf` where there is one.
    """
    # Not topk, which of equal logits may choose another than argmax does elsewhere.
    own = logits.argmax(dim=-1)
    best = logits.gather(-1, own[:, None])[:, 0]
    second = logits.scatter(-1, own[:, None], float("-inf")).amax(dim=-1)
    rows = torch.arange(1, len(ids), device=ids.device)
    right = (own[:-1] == ids[1:]) & (rows < count)
    accepted = right.long().cumprod(dim=0).sum()
    margins = best.float() - second.float()
    return torch.cat((accepted[None].double(), own.double(), margins.double()))
