"""Where a span is after the document changed, and whether the change touched it."""

from __future__ import annotations

from lsp_server.core import Span
from lsp_server.text.document import AppliedChange


def shift_span(span: Span, change: AppliedChange) -> Span | None:
    """Return the span in the text after the change, or None when the change touched its inside.

    | change                                     | answer                                    |
    | ------------------------------------------ | ----------------------------------------- |
    | nothing replaced by nothing                | the span                                  |
    | after, or beginning at the span's end      | the span: its own text is as it was       |
    | before, not reaching the span              | shifted                                   |
    | put in or replaced right before the start, | shifted: these are whole lines before it  |
    | the new text ending with a line end        |                                           |
    | put in or replaced right before the start, | None: it lengthens the span's first line  |
    | the new text not ending with a line end    |                                           |
    | taken out right before the start           | shifted: the span's own text is as it was |
    | inside, overlapping, or around             | None                                      |

    Text put in at both ends of an empty span counts as put in at its start.
    """
    if change.start == change.end and not change.text:
        return span
    empty_at_start = change.start == change.end == span.start
    if change.start >= span.end and not empty_at_start:
        return span
    if change.end > span.start:
        return None
    if change.end == span.start and change.text and not change.text.endswith(("\n", "\r")):
        return None
    moved = len(change.text) - (change.end - change.start)
    return span._replace(start=span.start + moved, end=span.end + moved)
