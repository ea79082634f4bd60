"""Edits mined from a local repository's history, in the form of the development edits.

A commit gives an edit when it changes one file of a known language. Where the change lies
in one function, the edit is that function before and after, else the whole file; of 10 to
600 lines, with the commit's message as the instruction. Its workspace is the other files of
the language in the parent commit, the nearest first, within bounds.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

from benchmarks.replay.items import BadInput
from lsp_server.core import Span
from lsp_server.languages import language_of
from lsp_server.spans import span_at
from lsp_server.text.line_ends import to_lf

LINES = range(10, 601)
MESSAGE_CHARS = 600

WORKSPACE_FILES = 200
WORKSPACE_FILE_BYTES = 256 * 1024
WORKSPACE_BYTES = 2 * 1024 * 1024
"""Of the parent commit's files that a drafter may read beside the edited one."""


def mine(spec: str, limit: int | None) -> list[dict[str, Any]]:
    """Return edits of `PATH` or `PATH@REVISION`, newest first.

    Raises:
        BadInput: there is no such repository or revision, or nothing in it fits.
    """
    path, _, revision = spec.partition("@")
    found = []
    for edit in _edits(Path(path), revision or "HEAD"):
        found.append(edit)
        if limit is not None and len(found) >= limit:
            break
    if not found:
        raise BadInput(f"No commit of {spec} changes one function or file of 10 to 600 lines.")
    return found


def _edits(folder: Path, revision: str) -> Iterator[dict[str, Any]]:
    listing = _git(folder, "log", "--no-merges", "--format=%x00%H%x00%B%x00", "--name-status",
                   "--diff-filter=AMDR", revision, "--")  # fmt: skip
    parts = listing.split("\0")[1:]
    workspace = _Workspace(folder)
    for commit, message, changes in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
        files = [line.split("\t") for line in changes.splitlines() if line.strip()]
        if len(files) != 1 or files[0][0] != "M":
            continue
        name = files[0][1]
        language = language_of(name)
        if not language or not message.strip():
            continue
        try:
            before, after = (_text(folder, f"{rev}:{name}") for rev in (f"{commit}^", commit))
        except BadInput:
            continue
        edit = _narrowed(before, after, language)
        if edit is None:
            continue
        matcher = SequenceMatcher(None, edit[0].splitlines(), edit[1].splitlines(), autojunk=False)
        copied = sum(block.size for block in matcher.get_matching_blocks())
        yield {
            "id": commit[:10],
            "language": language,
            "instruction": message.strip()[:MESSAGE_CHARS],
            "before": edit[0],
            "after": edit[1],
            "kind": "commit",
            "copy_ratio": copied / max(len(edit[1].splitlines()), 1),
            "source": {"repo": str(folder), "path": name},
            "workspace": workspace.texts(f"{commit}^", name, language),
        }


class _Workspace:
    """The other files of a commit; a text that stands in several commits is kept once.

    Args:
        folder: of the repository.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts: dict[str, str] = {}

    def texts(self, revision: str, name: str, language: str) -> list[str]:
        """Return the texts of files of the language, those nearest to `name` first."""
        files = []
        for line in _git(self._folder, "ls-tree", "-r", "-l", "-z", revision).split("\0"):
            facts, _, path = line.partition("\t")
            if path != name and path and language_of(path) == language:
                _, kind, blob, size = facts.split()
                if kind == "blob" and int(size) <= WORKSPACE_FILE_BYTES:
                    files.append((-_folders_in_common(path, name), path, blob))
        found, room = [], WORKSPACE_BYTES
        for _, _, blob in sorted(files)[:WORKSPACE_FILES]:
            if blob not in self._texts:
                try:
                    self._texts[blob] = to_lf(_git(self._folder, "cat-file", "blob", blob))
                except BadInput:  # not UTF-8
                    self._texts[blob] = ""
            room -= len(self._texts[blob])
            if room < 0:
                break
            found.append(self._texts[blob])
        return found


def _folders_in_common(one: str, other: str) -> int:
    return _common(one.split("/")[:-1], other.split("/")[:-1])


def _narrowed(before: str, after: str, language: str) -> tuple[str, str] | None:
    """Return the function that changed, before and after, else the whole file, if of a size."""
    if before == after:
        return None
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    span = span_at(before, language, start)
    if span is not None and _holds(span, start, len(before) - end):
        new_end = span.end + len(after) - len(before)
        one = before[span.start : span.end], after[span.start : new_end]
        if all(len(text.splitlines()) in LINES for text in one):
            return one
    whole = before, after
    return whole if all(len(text.splitlines()) in LINES for text in whole) else None


def _holds(span: Span, start: int, end: int) -> bool:
    return span.start <= start and end <= span.end


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    limit = min(len(one), len(other))
    return next((i for i in range(limit) if one[i] != other[i]), limit)


def _text(folder: Path, what: str) -> str:
    return to_lf(_git(folder, "show", what))


def _git(folder: Path, *arguments: str) -> str:
    try:
        ran = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, check=True
        )
        return ran.stdout.decode("utf-8")
    except (OSError, subprocess.CalledProcessError, UnicodeDecodeError) as error:
        said = getattr(error, "stderr", b"") or b""
        reason = said.decode("utf-8", "replace").strip().splitlines()
        raise BadInput(
            f"git cannot read {folder}: {reason[-1] if reason else type(error).__name__}"
        ) from error
