"""The workspace of a replayed edit: what a drafter may read beside the file that is edited.

Mined edits bring their own: the parent commit's other files (benchmarks/replay/git_edits.py).
For a file of edits it is made of the other edits: their texts `before`, of the same
repository and language, each once. Left out are those of the same path, which could hold the
answer at a later commit, and every `after`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


def files_beside(
    edits: Sequence[Mapping[str, Any]], tokenize: Callable[[str], Sequence[int]]
) -> Iterator[list[Sequence[int]]]:
    """Yield for each edit the token ids of the other files, the nearest first."""
    known: dict[str, Sequence[int]] = {}

    def tokens_of(text: str) -> Sequence[int]:
        if text not in known:
            known[text] = array("i", tokenize(text))
        return known[text]

    for edit in edits:
        own = edit.get("workspace")
        texts = own if own is not None else _other_texts(edit, edits)
        yield [tokens_of(text) for text in texts]


def _other_texts(edit: Mapping[str, Any], edits: Sequence[Mapping[str, Any]]) -> list[str]:
    place = _place(edit)
    if place is None:
        return []
    found: dict[str, None] = {}
    for other in edits:
        where = _place(other)
        if where is not None and where[:2] == place[:2] and where[2] != place[2]:
            found[other["before"]] = None
    found.pop(edit["before"], None)
    return list(found)


def _place(edit: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Return repository, language and path; None where they are not told."""
    source = edit.get("source")
    if not isinstance(source, dict):
        return None
    repo, path = source.get("repo"), source.get("path")
    return (repo, edit["language"], path) if repo and path else None
