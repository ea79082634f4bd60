"""From tokens to text: whole characters, stop texts, and what was copied from where."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from engine.core import CopiedRun, TextDelta

PRIMING = 8
"""Prompt tokens shown to the decoder first, so that a leading space is not lost."""


class TextStream:
    """Turns emitted tokens into settled text.

    Text is settled when it can no longer change or turn out to be a stop text: half a
    character and a possible beginning of a stop text are held back.

    Args:
        tokenizer: the target's.
        prompt: the prompt's token ids; only the last few are looked at.
        stop: texts that end the answer; they and what follows are dropped.
        source: the text being rewritten.
        source_offsets: for each source token, its (start, end) in characters.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        stop: Sequence[str] = (),
        source: str = "",
        source_offsets: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._tokenizer = tokenizer
        self._decoder = DecodeStream(ids=list(prompt[-PRIMING:]), skip_special_tokens=True)
        self._stop = tuple(text for text in stop if text)
        self._longest_stop = max((len(text) for text in self._stop), default=0)
        self._source = source
        self._offsets = source_offsets
        self._undecoded: list[int] = []
        self._undecoded_from: int | None = None
        self._text = ""
        self._taken = 0
        self._runs: list[CopiedRun] = []
        self.stopped = False

    def feed(self, token: int, source_index: int | None = None) -> None:
        """Append one emitted token.

        Args:
            token: its id.
            source_index: index of the source token that it was copied from, if any.
        """
        if not self._undecoded:
            self._undecoded_from = source_index
        self._undecoded.append(token)
        piece = self._decoder.step(self._tokenizer, token)
        if piece:
            self._append(piece)

    def take(self) -> TextDelta | None:
        """Return the text that has settled since the last call, or None."""
        end = len(self._text)
        return self._take_until(end if self.stopped else end - self._held_back())

    def finish(self) -> TextDelta | None:
        """Return all text still held back; half a character at the end is dropped."""
        if not self.stopped and self._undecoded:
            tail = self._tokenizer.decode(self._undecoded, skip_special_tokens=True)
            self._append(tail.rstrip("\ufffd"))
        return self._take_until(len(self._text))

    def _append(self, piece: str) -> None:
        self._note_copy(len(self._text), piece)
        self._undecoded.clear()
        search_from = max(0, len(self._text) - self._longest_stop + 1)
        self._text += piece
        found = [at for text in self._stop if (at := self._text.find(text, search_from)) >= 0]
        if found:
            self._text = self._text[: min(found)]
            self.stopped = True

    def _note_copy(self, start: int, piece: str) -> None:
        index = self._undecoded_from
        if index is None or index >= len(self._offsets):
            return
        source_start = self._offsets[index][0]
        if self._source[source_start : source_start + len(piece)] != piece:
            return
        if self._runs:
            last = self._runs[-1]
            if (last.start + last.length, last.source_start + last.length) == (start, source_start):
                self._runs[-1] = last._replace(length=last.length + len(piece))
                return
        self._runs.append(CopiedRun(start, source_start, len(piece)))

    def _held_back(self) -> int:
        """Return the length of the longest end of the text that may begin a stop text."""
        return max((_overlap(self._text, text) for text in self._stop), default=0)

    def _take_until(self, end: int) -> TextDelta | None:
        start, self._taken = self._taken, max(end, self._taken)
        if end <= start:
            return None
        copied = []
        for run in self._runs:
            low, high = max(run.start, start), min(run.start + run.length, end)
            if low < high:
                source_start = run.source_start + low - run.start
                copied.append(CopiedRun(low - start, source_start, high - low))
        # Runs that are taken whole are done with; the last may still grow.
        self._runs = [run for run in self._runs if run.start + run.length >= end]
        return TextDelta(self._text[start:end], tuple(copied))


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest proper prefix of `stop` that ends `text`."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
