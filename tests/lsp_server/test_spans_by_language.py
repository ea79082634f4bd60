"""Where the cursor is, and which span that must give, for every language.

The cases are in `fixtures/spans/LANGUAGE.txt`. A case begins with `=== title | kind name`,
with `crlf` at the end for a document with \\r\\n. In its text `‸` is a cursor and `⟦`...`⟧`
is the span that every cursor must give; without brackets there must be none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from lsp_server.core import Span
from lsp_server.languages import LANGUAGES
from lsp_server.spans import span_at

FIXTURES = Path(__file__).parent / "fixtures" / "spans"
LEAST_CASES = 5


class Case(NamedTuple):
    language: str
    title: str
    text: str
    cursors: tuple[int, ...]
    expected: Span | None


def read_cases(language: str) -> list[Case]:
    document = (FIXTURES / f"{language}.txt").read_text(encoding="utf-8")
    blocks = re.split(r"^=== ", document, flags=re.MULTILINE)[1:]
    return [read_case(language, block) for block in blocks]


def read_case(language: str, block: str) -> Case:
    head, marked = block.split("\n", 1)
    title, _, facts = head.partition("|")
    words = facts.split()
    if "crlf" in words:
        words.remove("crlf")
        marked = marked.replace("\n", "\r\n")
    text = ""
    marks: dict[str, list[int]] = {"‸": [], "⟦": [], "⟧": []}
    for char in marked:
        if char in marks:
            marks[char].append(len(text))
        else:
            text += char
    expected = None
    if marks["⟦"]:
        (start,), (end,) = marks["⟦"], marks["⟧"]
        expected = Span(start, end, words[0], " ".join(words[1:]))
    assert marks["‸"], f"no cursor in {title!r}"
    return Case(language, title.strip(), text, tuple(marks["‸"]), expected)


CASES = [case for language in LANGUAGES for case in read_cases(language.id)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.language}: {case.title}")
def test_every_cursor_gives_the_marked_span(case: Case) -> None:
    for cursor in case.cursors:
        found = span_at(case.text, case.language, cursor)
        around = f"{case.text[:cursor]}‸{case.text[cursor:]}"
        shown = None if found is None else case.text[found.start : found.end]
        assert found == case.expected, f"got {found} {shown!r} at\n{around}"


@pytest.mark.parametrize("language", [language.id for language in LANGUAGES])
def test_every_language_has_enough_cases(language: str) -> None:
    assert len(read_cases(language)) >= LEAST_CASES
