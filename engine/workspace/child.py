"""Run as `python -m engine.workspace.child`: reads a workspace and writes its index.

A process of its own, at the lowest priority: nothing that it does can hold up an answer. On
stdin a JSON object: `folders`, `suffixes`, `tokenizer` (a file), `known` (the fingerprint of
the index that there is, or ""). On stdout a line with the fingerprint, then the index, or
nothing where it would be the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import BinaryIO

from engine.workspace.files import File, find_files, fingerprint, read_texts

LOWEST = 19


def main(asked: str, out: BinaryIO) -> None:
    """Do what the module says."""
    task = json.loads(asked)
    files = find_files(task["folders"], task["suffixes"])
    now = fingerprint(files)
    out.write(now.encode("ascii") + b"\n")
    if now != task["known"]:
        from drafters.workspace import build_index

        out.write(build_index(_tokens(files, task["tokenizer"])).written())
    out.flush()


def _tokens(files: list[File], tokenizer_file: str) -> Iterator[list[int]]:
    from tokenizers import Tokenizer

    from engine.vocabulary import without_composing

    tokenizer = Tokenizer.from_file(tokenizer_file)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.normalizer = without_composing(tokenizer.normalizer)  # type: ignore[assignment]
    for text in read_texts(files):
        yield tokenizer.encode(text, add_special_tokens=False).ids


if __name__ == "__main__":
    with contextlib.suppress(AttributeError, OSError):
        os.nice(LOWEST)
    main(sys.stdin.read(), sys.stdout.buffer)
