"""What of a hunk's text really changed, by tokens: for display only, never for an edit."""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

# Longer hunks are shown as a whole: the comparison takes quadratic time.
MAX_TOKENS = 400

_TOKEN = re.compile(r"\w+|\r\n|\s|[^\w\s]")


class Part(NamedTuple):
    """`old_text[old_start:old_end]` became `new_text[new_start:new_end]`; one may be empty."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


@lru_cache(maxsize=256)
def refine(old_text: str, new_text: str) -> tuple[Part, ...]:
    """Return the parts that differ, in order, not overlapping; what is between them is equal.

    A token is a word, a line end, a blank or one other character. Texts of more than
    `MAX_TOKENS` tokens are one part.
    """
    if old_text == new_text:
        return ()
    old, new = _TOKEN.findall(old_text), _TOKEN.findall(new_text)
    if not old or not new or max(len(old), len(new)) > MAX_TOKENS:
        return (Part(0, len(old_text), 0, len(new_text)),)
    old_at, new_at = _starts(old), _starts(new)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return tuple(
        Part(old_at[a], old_at[b], new_at[c], new_at[d])
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
    )


def _starts(tokens: list[str]) -> list[int]:
    """Return where each token begins, and where the last one ends."""
    starts = [0]
    for token in tokens:
        starts.append(starts[-1] + len(token))
    return starts
