"""Which files of a workspace are read for drafting, and which never are.

Only what git knows of a folder and does not ignore; a folder outside a git work tree is not
read at all, since nothing says there what is private. Never read: links, large files, what is
not UTF-8 text, what looks like a secret by its name or holds a private key.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Sequence
from typing import NamedTuple

MAX_FOLDERS = 16
MAX_SUFFIXES = 16
MAX_LISTED = 50_000
"""Names of one folder that are looked at."""

MAX_FILES = 1000
MAX_FILE_BYTES = 256 * 1024
MAX_BYTES = 4 * 1024 * 1024
MAX_LINE = 2000
"""Characters of a line from which a file counts as made by a program, not a person."""

GIT_SECONDS = 20.0

# A repository's own settings may name programs that git would run: none of them here.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false")

_SECRET = re.compile(
    r"^\.|(^|[^a-z])(secrets?|credentials?|passwords?|passwd|private_?key|id_(rsa|dsa|ecdsa|ed25519)"
    r"|apikeys?|api_keys?)([^a-z]|$)",
    re.IGNORECASE,
)
_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")


class File(NamedTuple):
    """A file that may be read, and what shows that it changed."""

    path: str
    size: int
    modified: int


def find_files(folders: Sequence[str], suffixes: Sequence[str]) -> list[File]:
    """Return the files of the workspace, the newest first, within the bounds of this module.

    Args:
        folders: absolute paths.
        suffixes: of file names, without the dot.
    """
    endings = tuple(f".{suffix}" for suffix in suffixes[:MAX_SUFFIXES])
    found: dict[str, File] = {}
    for folder in folders[:MAX_FOLDERS]:
        for name in _names(folder, endings):
            path = os.path.join(folder, name)
            file = _seen(path)
            if file is not None:
                found[path] = file
    newest = sorted(found.values(), key=lambda file: (-file.modified, file.path))
    chosen: list[File] = []
    room = MAX_BYTES
    for file in newest[:MAX_FILES]:
        room -= file.size
        if room < 0:
            break
        chosen.append(file)
    return chosen


def fingerprint(files: Sequence[File]) -> str:
    """Return a text that changes when any of the files, or their choice, does."""
    return hashlib.sha256(repr([tuple(file) for file in files]).encode()).hexdigest()


def read_texts(files: Sequence[File]) -> Iterator[str]:
    """Yield the texts of the files that are code a person may be shown again."""
    for file in files:
        text = _read(file.path)
        if text and not _KEY.search(text) and max(map(len, text.split("\n"))) <= MAX_LINE:
            yield text


def _names(folder: str, endings: tuple[str, ...]) -> list[str]:
    """Return relative names that git lists and does not ignore; none outside a work tree."""
    listed = _git(folder, "--cached", "--others", "--exclude-standard")
    # What was committed although it is ignored is still ignored here.
    ignored = set(_git(folder, "--cached", "--ignored", "--exclude-standard"))
    return [
        name
        for name in listed[:MAX_LISTED]
        if name.endswith(endings)
        and name not in ignored
        and not any(_SECRET.search(part) for part in name.split("/"))
    ]


def _git(folder: str, *options: str) -> list[str]:
    try:
        ran = subprocess.run(
            [*_GIT, "-C", folder, "ls-files", "-z", "--deduplicate", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_SECONDS,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return os.fsdecode(ran.stdout).split("\0")[:-1]


def _seen(path: str) -> File | None:
    try:
        seen = os.lstat(path)
    except (OSError, ValueError):
        return None
    if not stat.S_ISREG(seen.st_mode) or not 0 < seen.st_size <= MAX_FILE_BYTES:
        return None
    return File(path, seen.st_size, seen.st_mtime_ns)


def _read(path: str) -> str:
    """Return a file's text with LF line ends, or the empty text where it is none."""
    try:
        with open(path, "rb", opener=_opener) as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES or b"\0" in data:
            return ""
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError):
        return ""


def _opener(path: str, flags: int) -> int:
    # Not through a link that took the file's place, and never waiting at a pipe.
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
