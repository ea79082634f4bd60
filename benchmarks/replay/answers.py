"""Recorded answers: what a real target wrote for the edits, to be replayed instead of theirs.

A file of JSON lines, one answer each, with a small file beside it that says what made it
and holds its sha256, so that a figure is never of answers that somebody changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.replay.items import BadInput

FINISHED = "stop"
"""Why an answer must have ended to be replayed: one that was cut off shows the limit."""


def origin_file(file: Path) -> Path:
    """Return where it stands what made a file of answers."""
    return file.with_name(file.name + ".origin.json")


def sha256_of(file: Path) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def append(file: Path, answer: Mapping[str, Any], made_by: Mapping[str, str]) -> None:
    """Write one more answer, then what made them all and the new checksum."""
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(answer) + "\n")
    origin_file(file).write_text(json.dumps({**made_by, "sha256": sha256_of(file)}), "utf-8")


def read(file: Path, made_by: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the answers by the ids of their edits; none where there is no file yet.

    Args:
        file: of answers.
        made_by: what must have made it: the model, the checksum of the edits.

    Raises:
        BadInput: the file is not what was recorded, or something else made it.
    """
    if not file.exists() and made_by is not None:
        return {}
    try:
        origin = json.loads(origin_file(file).read_text("utf-8"))
        answers = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        found = {str(answer["id"]): answer for answer in answers}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(f"{file} holds no recorded answers; record them anew.") from error
    if not isinstance(origin, dict) or origin.get("sha256") != sha256_of(file):
        raise BadInput(f"{file} was changed since it was recorded; record it anew.")
    for name, value in (made_by or {}).items():
        if origin.get(name) != value:
            raise BadInput(
                f"{file} was recorded with another {name} ({origin.get(name)}); take another file."
            )
    return found


def with_answers(
    edits: list[dict[str, Any]], answers: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return the edits that have a whole answer, that answer as their `after`.

    Raises:
        BadInput: there is none.
    """
    found = [
        {**edit, "after": answers[edit["id"]]["text"]}
        for edit in edits
        if edit["id"] in answers and answers[edit["id"]]["reason"] == FINISHED
    ]
    if not found:
        raise BadInput("None of these edits has a whole recorded answer.")
    return found
