r"""Hunks: what has to change in the document so that its span says what the model wrote.

Lines are compared without their line ends, since the model writes `\n` whatever the document
has. A line that stays keeps its own line end byte for byte; a line that is put in gets the
span's most frequent one, or the document's when the span has none. Everything else counts: a
changed space at a line's end is a change.

A text of n line ends has n + 1 lines, the last of which may be empty. A hunk covers whole lines:

- lines replaced: from the first one's start to the last one's end, its line end left as it is;
- lines taken out: with the line ends behind them; at the span's end with those before them;
- lines put in: before a line, each with a line end behind it; at the span's end before it.

Any two hunks have an unchanged line and at least one character between them, so each can be
applied with or without the others, in any sequence.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from lsp_server.core import Hunk, HunksUpdate, Span
from lsp_server.text.alignment import (
    Chain,
    Region,
    Subsequences,
    changed_regions,
    pairs_of,
    places_of,
    regions,
)
from lsp_server.text.line_ends import dominant_line_end, to_lf
from lsp_server.text.positions import LINE_END

# Of an often repeated line, so many places are looked at while streaming: the next ones.
MAX_PLACES = 64
# So many lines are taken out on the word of one line behind them; see `HunkStream`.
SHORT_DELETION = 3


def final_hunks(document_text: str, span: Span, new_text: str) -> tuple[Hunk, ...]:
    """Return the minimal line diff from the span's text to `new_text`.

    Args:
        document_text: the whole document.
        span: the replaced range; moved into the document where it is not.
        new_text: what the span is to say, line ends not mattering.

    Returns:
        Hunks `h1`, `h2`, ... in order, not overlapping, with offsets in the document; none when
        only line ends differ.
    """
    old = _SpanLines(document_text, span)
    return old.hunks(to_lf(new_text).split("\n"))


def apply_hunks(document_text: str, hunks: Iterable[Hunk]) -> str:
    """Return the document with the hunks applied, all or any of them, in any sequence.

    Raises:
        ValueError: hunks overlap, or the document does not hold a hunk's old text.
    """
    parts, at = [], 0
    for hunk in sorted(hunks, key=lambda hunk: (hunk.start, hunk.end)):
        if hunk.start < at:
            raise ValueError(f"Hunk {hunk.id} overlaps the one before it.")
        if document_text[hunk.start : hunk.end] != hunk.old_text:
            raise ValueError(f"Hunk {hunk.id} was made for another text of the document.")
        parts += (document_text[at : hunk.start], hunk.new_text)
        at = hunk.end
    return "".join((*parts, document_text[at:]))


def span_text_with(document_text: str, span: Span, hunks: Iterable[Hunk]) -> str:
    """Return the span's text with the hunks applied; hunks outside the span are left out.

    Raises:
        ValueError: as `apply_hunks`.
    """
    inside = [hunk for hunk in hunks if span.start <= hunk.start and hunk.end <= span.end]
    after = apply_hunks(document_text, inside)
    return after[span.start : span.end + len(after) - len(document_text)]


class HunkStream:
    """Hunks while the answer is being written.

    Only whole lines are compared. Lines that follow the last settled ones settle at once when
    they are the next lines of the document. Others wait until a run of lines is found in the
    document again, and settle with it:

    - the run's lines add up to enough proof: a line that the span has once counts 2, a repeated
      or very short one 1, one without two letters or digits (`}`, `);`, blank) 0;
    - 1 is enough where as many lines are put in as taken out, 2 where more are put in or up to
      SHORT_DELETION more taken out, 4 beyond that: a line further down may just look the same.

    What has settled is not looked at again before `finish`, so an update costs time in
    proportion to its new lines, and the hunks shown can be somewhat longer than the final ones.
    """

    def __init__(self, document_text: str, span: Span) -> None:
        self._old = _SpanLines(document_text, span)
        self._places = places_of(self._old.lines, 0, len(self._old.lines))
        self._seen = ""
        self._new: list[str] = []
        self._hunks: list[Hunk] = []
        self._settled = self._old.starts[0]
        # The next line of either side that has not settled, and the search from there on.
        self._old_at = self._new_at = 0
        self._search = Subsequences()

    def update(self, new_text_so_far: str) -> HunksUpdate:
        """Take the new text as far as it is written and return what has settled.

        A text that does not go on from the last one is returned as it is, with the same hunks
        as before; `finish` puts it right.
        """
        if new_text_so_far.startswith(self._seen):
            written = new_text_so_far[len(self._seen) :]
            # A \r may be half a line end.
            complete = to_lf(written[:-1] if written.endswith("\r") else written)
            *lines, _ = complete.split("\n")
            if lines:
                ends = [match.end() for match in LINE_END.finditer(written)]
                self._seen += written[: ends[len(lines) - 1]]
            for line in lines:
                self._add(line)
        return HunksUpdate(tuple(self._hunks), self._settled, new_text_so_far)

    def finish(self, new_text: str) -> tuple[Hunk, ...]:
        """Return the final hunks of the whole new text.

        They are those of `final_hunks`; one that was shown before keeps its id, the others get
        ids that were never used.
        """
        shown = {hunk._replace(id=""): hunk.id for hunk in self._hunks}
        numbered = len(self._hunks)
        result = []
        for hunk in self._old.hunks(to_lf(new_text).split("\n")):
            known = shown.get(hunk._replace(id=""))
            if known is None:
                numbered += 1
            result.append(hunk._replace(id=known or f"h{numbered}"))
        return tuple(result)

    def _add(self, line: str) -> None:
        at = len(self._new)
        self._new.append(line)
        old_lines = self._old.lines
        if at == self._new_at and self._old_at < len(old_lines) and line == old_lines[self._old_at]:
            self._settle(self._old_at, at)
            return
        places = self._places.get(line)
        if not places:
            return
        first = bisect_left(places, self._old_at)
        chain = self._search.add(at, places[first : first + MAX_PLACES])
        if chain is not None and self._is_proof(chain):
            for region in regions(
                pairs_of(chain), (self._old_at, chain.old + 1), (self._new_at, chain.new + 1)
            ):
                self._hunks.append(self._old.hunk(f"h{len(self._hunks) + 1}", region, self._new))
            self._settle(chain.old, chain.new)

    def _settle(self, old: int, new: int) -> None:
        self._settled = self._old.ends[old]
        self._old_at, self._new_at = old + 1, new + 1
        self._search = Subsequences()

    def _is_proof(self, chain: Chain) -> bool:
        proof, run = 0, chain
        while True:
            proof += self._proof(self._old.lines[run.old])
            before = run.before
            if before is None or (before.old, before.new) != (run.old - 1, run.new - 1):
                break
            run = before
        taken_out = (run.old - self._old_at) - (run.new - self._new_at)
        if taken_out == 0:
            return proof >= 1
        return proof >= (2 if taken_out <= SHORT_DELETION else 4)

    def _proof(self, line: str) -> int:
        letters = sum(map(str.isalnum, line))
        if letters < 2:
            return 0
        return 2 if letters > 5 and len(self._places[line]) == 1 else 1


class _SpanLines:
    """The span's lines without their line ends, and where they stand in the document."""

    def __init__(self, document_text: str, span: Span) -> None:
        start = min(max(span.start, 0), len(document_text))
        end = min(max(span.end, start), len(document_text))
        line_ends = [match.span() for match in LINE_END.finditer(document_text, start, end)]
        self.document = document_text
        self.starts = [start, *(after for _, after in line_ends)]
        self.ends = [*(before for before, _ in line_ends), end]
        self.lines = [document_text[a:b] for a, b in zip(self.starts, self.ends, strict=True)]
        self.line_end = dominant_line_end(document_text[start:end] if line_ends else document_text)

    def hunks(self, new: Sequence[str]) -> tuple[Hunk, ...]:
        found = changed_regions(self.lines, new)
        hunks = [self.hunk(f"h{n}", region, new) for n, region in enumerate(found, 1)]
        # Around an empty last line, what is put in before and after it is at one place.
        if len(hunks) > 1 and hunks[-2].end == hunks[-1].start:
            hunks[-2:] = [_joined(*hunks[-2:])]
        return tuple(hunks)

    def hunk(self, name: str, region: Region, new: Sequence[str]) -> Hunk:
        first, behind, new_first, new_behind = region
        put_in = new[new_first:new_behind]
        text = self.line_end.join(put_in)
        if first < behind and put_in:
            start, end = self.starts[first], self.ends[behind - 1]
        elif behind < len(self.lines):
            start, end = self.starts[first], self.starts[behind]
            text += self.line_end if put_in else ""
        else:
            start, end = self.ends[first - 1], self.ends[-1]
            text = self.line_end + text if put_in else ""
        start, text = self._apart(start, end, text)
        return Hunk(name, start, end, self.document[start:end], text)

    def _apart(self, start: int, end: int, text: str) -> tuple[int, str]:
        r"""Keep a `\r` and a `\n` that come to stand side by side from being one line end."""
        after_cr = start > self.starts[0] and self.document[start - 1] == "\r"
        before_lf = self.document[end : end + 1] == "\n"
        if after_cr and before_lf and not text and end > start:
            return start - 1, "\r\n"
        if after_cr and text.startswith("\n"):
            text = "\r" + text
        if before_lf and text.endswith("\r"):
            text = text[:-1] + "\r\n"
        return start, text


def _joined(first: Hunk, second: Hunk) -> Hunk:
    old_text, new_text = first.old_text + second.old_text, first.new_text + second.new_text
    return Hunk(first.id, first.start, second.end, old_text, new_text)
