"""Token trees: several continuations of one text, verified in one pass.

A pass over a tree has a row for the last emitted token (row 0) and one for each drafted
token (row i + 1), in any order that puts parents first. A row stands at the position that
it would have in plain decoding, which is its depth behind row 0, and sees the rows that it
follows and no other (Miao et al. 2024, "SpecInfer"; Cai et al. 2024, "Medusa").

Keys and values are appended in the order of the rows. So the row that is `depth` behind row
0 is found `depth` slots behind it only along the main chain; for each side branch its *path*
says which rows belong there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from drafters.core import Draft


class View(NamedTuple):
    """Rows that see the same keys: those of one path through the tree, each up to its own.

    Attributes:
        start, stop: these rows of the pass, counted in `Tree.order`.
        path: the row at each depth, from row 0 on.
    """

    start: int
    stop: int
    path: tuple[int, ...]


class Tree(NamedTuple):
    """The shape of a pass.

    Attributes:
        paths: the rows that each row sees, from row 0 to itself.
        depths: of each row, 0 for row 0.
        order: the rows in the order of the views.
        main: how many first rows of `order` see the slots as they lie.
        views: of the other rows.
    """

    paths: tuple[tuple[int, ...], ...]
    depths: tuple[int, ...]
    order: tuple[int, ...]
    main: int
    views: tuple[View, ...]

    @property
    def is_in_order(self) -> bool:
        """Whether the rows of each view stand together as they are."""
        return self.order == tuple(range(len(self.order)))

    def widened(self, rows: int) -> Tree:
        """Return it with `rows` rows; nobody may read what those added at the end compute."""
        added = tuple(range(len(self.depths), rows))
        last = self.views[-1]
        last = last._replace(stop=last.stop + len(added))
        return self._replace(
            depths=(*self.depths, *added),
            order=(*self.order, *added),
            views=(*self.views[:-1], last),
        )


def tree_of(parents: Sequence[int]) -> Tree | None:
    """Return the shape of a pass over drafted tokens with these `parents`; None for a chain.

    Args:
        parents: as in `drafters.core.Draft`.

    Raises:
        ValueError: a token stands before the one that it follows.
    """
    if all(parent == index - 1 for index, parent in enumerate(parents)):
        return None
    paths: list[tuple[int, ...]] = [(0,)]
    for index, parent in enumerate(parents):
        if not -1 <= parent < index:
            raise ValueError(f"drafted token {index} cannot follow token {parent}")
        paths.append((*paths[parent + 1], index + 1))
    is_leaf = [True] * len(paths)
    for parent in parents:
        is_leaf[parent + 1] = False
    # The rows whose path lies in its slots already.
    order = [row for row, path in enumerate(paths) if path == tuple(range(row + 1))]
    main, placed = len(order), set(order)
    views = []
    # Each row but those is seen to once, with the first leaf that its path leads to.
    for path in (path for path, leaf in zip(paths, is_leaf, strict=True) if leaf):
        rows = [row for row in path if row not in placed]
        if rows:
            views.append(View(len(order), len(order) + len(rows), path))
            order += rows
            placed.update(rows)
    depths = tuple(len(path) - 1 for path in paths)
    return Tree(tuple(paths), depths, tuple(order), main, tuple(views))


def main_length(draft: Draft) -> int:
    """Return how many first tokens of a draft are its main chain."""
    return chain_length(draft.parents) if draft.parents else len(draft.tokens)


def chain_length(parents: Sequence[int]) -> int:
    """Return how many first tokens follow each the one before it."""
    return next((i for i, parent in enumerate(parents) if parent != i - 1), len(parents))


def begins_branch(parents: Sequence[int], index: int) -> bool:
    """Return whether a drafted token goes on elsewhere than behind the one before it."""
    return bool(parents) and parents[index] != index - 1


def children_of(parents: Sequence[int], count: int) -> list[list[int]]:
    """Return the drafted tokens that follow row 0, row 1, ...; `count` tokens in a chain
    where `parents` is empty.
    """
    children: list[list[int]] = [[] for _ in range(count + 1)]
    for index in range(count):
        children[(parents[index] if parents else index - 1) + 1].append(index)
    return children


def taken(parents: Sequence[int], nodes: Sequence[int]) -> list[int]:
    """Return the parents of the chosen `nodes`, counted among them; empty for a chain.

    Args:
        parents: of all drafted tokens, or empty for a chain.
        nodes: indices in rising order, each behind the one that it follows.
    """
    place = {-1: -1} | {node: index for index, node in enumerate(nodes)}
    kept = [place[parents[node] if parents else node - 1] for node in nodes]
    return [] if kept == list(range(-1, len(kept) - 1)) else kept
