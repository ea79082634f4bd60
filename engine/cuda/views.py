"""What rows of a token tree see in a captured pass: the last blocks, as each branch has them.

A captured pass does the same work each time, so the branches cannot take turns in the slots
as on the eager runner. Instead the blocks that the pass may write to are gathered once more
for each side branch, with the branch's own rows where plain decoding would have them. All
rows are multiplied with all of these blocks, by the product that is used for every block,
and of the results each row takes those of its own branch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from engine.tree import Tree

TOUCHED = 2
"""Blocks that the rows of one pass may stand in, next to each other."""

FEW = 8
"""Side branches of the smaller of the two kinds of captured tree passes."""


class Views(NamedTuple):
    """The views of a pass, on its device.

    Attributes:
        blocks: int64 `[TOUCHED]`, the blocks that are gathered.
        slots: int64 `[views, TOUCHED * block]`, the slot of what belongs in each place there.
        of_row: int64 `[rows]`, which view a row has; 0 is the slots as they lie.
    """

    blocks: torch.Tensor
    slots: torch.Tensor
    of_row: torch.Tensor


def kinds_of(tree: Tree, rows: int) -> int:
    """Return how many views the captured pass of so many rows has that fits `tree`."""
    return FEW if len(tree.views) <= FEW else rows - 1


def packed(tree: Tree, rows: int, views: int) -> list[int]:
    """Return depths, view and paths of a tree as numbers for `unpacked`.

    Args:
        tree: the shape of the first rows; those behind them fill the pass up.
        rows: of the pass.
        views: that the pass has, at least those of the tree.
    """
    depths = [*tree.depths, *range(len(tree.depths), rows)]
    of_row = [0] * rows
    paths = [[-1] * rows for _ in range(views)]
    for number, view in enumerate(tree.views):
        for row in tree.order[view.start : view.stop]:
            of_row[row] = number + 1
        paths[number][: len(view.path)] = view.path
    return [*depths, *of_row, *(row for path in paths for row in path)]


def unpacked(
    numbers: torch.Tensor, start: torch.Tensor, rows: int, slots: int, block: int
) -> tuple[torch.Tensor, Views]:
    """Return the depths of the rows, int64 `[rows]`, and their views.

    Args:
        numbers: as from `packed`, int64.
        start: slot of the first row.
        rows: of the pass.
        slots: of the pass, at least `TOUCHED` blocks.
        block: slots a block; more than `rows`.
    """
    depths, of_row, paths = numbers[:rows], numbers[rows : 2 * rows], numbers[2 * rows :]
    first = (start // block).clamp(max=slots // block - TOUCHED)
    blocks = first + torch.arange(TOUCHED, device=numbers.device)
    places = first * block + torch.arange(TOUCHED * block, device=numbers.device)
    depth = places - start
    on_path = paths.view(-1, rows)[:, depth.clamp(0, rows - 1)]
    is_moved = (depth >= 0) & (depth < rows) & (on_path >= 0)
    return depths, Views(blocks, torch.where(is_moved, start + on_path, places), of_row)


def gathered(states: torch.Tensor, views: Views) -> torch.Tensor:
    """Return `[heads, views * TOUCHED, block, size]` of states `[heads, blocks, block, size]`."""
    heads, _, block, size = states.shape
    chosen = states.reshape(heads, -1, size).index_select(1, views.slots.flatten())
    return chosen.view(heads, -1, block, size)


def put_in(whole: torch.Tensor, of_views: torch.Tensor, views: Views) -> None:
    """Replace in `whole`, `[heads, blocks, group, rows, n]`, what rows see in other views.

    Args:
        whole: results with the blocks as they lie.
        of_views: `[heads, views * TOUCHED, group, rows, n]`, with the gathered ones.
        views: whose they are.
    """
    heads, _, group, rows, n = whole.shape
    lying = whole.index_select(1, views.blocks)
    parts = torch.cat((lying, of_views), dim=1).view(heads, -1, TOUCHED, group, rows, n)
    index = views.of_row.view(1, 1, 1, 1, rows, 1).expand(heads, 1, TOUCHED, group, rows, n)
    whole.index_copy_(1, views.blocks, parts.gather(1, index)[:, 0])
