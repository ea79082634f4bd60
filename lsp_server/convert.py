"""From character offsets to LSP's positions and plain JSON. The only place that does so."""

from __future__ import annotations

from typing import Any

from lsprotocol import types

from lsp_server.core import Hunk
from lsp_server.text.positions import Encoding, LineIndex, width
from lsp_server.text.refine import refine


def range_json(lines: LineIndex, start: int, end: int, encoding: Encoding) -> dict[str, Any]:
    """The LSP range of `text[start:end]` as JSON."""
    first, last = lines.position(start, encoding), lines.position(end, encoding)
    return {
        "start": {"line": first.line, "character": first.character},
        "end": {"line": last.line, "character": last.character},
    }


def range_of(lines: LineIndex, start: int, end: int, encoding: Encoding) -> types.Range:
    """The LSP range of `text[start:end]`."""
    first, last = lines.position(start, encoding), lines.position(end, encoding)
    return types.Range(
        start=types.Position(line=first.line, character=first.character),
        end=types.Position(line=last.line, character=last.character),
    )


def hunks_json(
    lines: LineIndex, hunks: tuple[Hunk, ...], encoding: Encoding
) -> list[dict[str, Any]]:
    """Hunks as `redraft/hunks` sends them."""
    return [
        {
            "id": hunk.id,
            "range": range_json(lines, hunk.start, hunk.end, encoding),
            "oldText": hunk.old_text,
            "newText": hunk.new_text,
            "parts": parts_json(hunk, encoding),
        }
        for hunk in hunks
    ]


def parts_json(hunk: Hunk, encoding: Encoding) -> list[dict[str, list[int]]]:
    """What of a hunk differs, by tokens: units of the encoding from its texts' starts."""
    return [
        {
            "old": [width(hunk.old_text[:at], encoding) for at in (part.old_start, part.old_end)],
            "new": [width(hunk.new_text[:at], encoding) for at in (part.new_start, part.new_end)],
        }
        for part in refine(hunk.old_text, hunk.new_text)
    ]


def text_edits(
    lines: LineIndex, hunks: tuple[Hunk, ...], encoding: Encoding
) -> list[types.TextEdit]:
    """Hunks as edits of one document version; ordered and not overlapping, as hunks are."""
    return [
        types.TextEdit(range=range_of(lines, h.start, h.end, encoding), new_text=h.new_text)
        for h in hunks
    ]
