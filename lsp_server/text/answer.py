r"""The code in a model's answer, while it streams.

The prompt has opened a code block with a fence line, so the answer is the code up to the closing
fence. Models stray from that in known ways: they open a block again, with or without a sentence
before it, forget to close it, or write their end token as text. `AnswerCleaner` removes these
and nothing else. What can still turn out to be one is held back: at most the current line, the
blank lines at the end, and at the very start a sentence that a fence may follow.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

from lsp_server.text.line_ends import to_lf

# End tokens of common model families. A model without them as special tokens writes them as text.
END_TOKENS = (
    "<|im_end|>",
    "<|im_start|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
    "<｜end▁of▁sentence｜>",
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "<|file_sep|>",
    "<|repo_name|>",
)
_LONGEST_TOKEN = max(map(len, END_TOKENS))

MAX_SENTENCES = 3
MAX_SENTENCE_CHARS = 300

_RUN = re.compile(r"`{3,}|~{3,}")
_FENCE = re.compile(r"([ \t]*)(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_FENCE_BEGINNING = re.compile(r"[ \t]*(`{0,2}|~{0,2}|`{3}.*|~{3}.*)$")
_SENTENCE = re.compile(r"[A-Z][A-Za-z'’]*([ ,!:.].*)?[.:!]\s*$")


class _Fence(NamedTuple):
    """A fence line: how far it is indented, its run of backticks or tildes, what follows."""

    indent: int
    run: str
    info: str

    def reaches(self, opened: str) -> bool:
        """Whether it is of the same kind as `opened` and as long (CommonMark 0.31, 4.5)."""
        return self.run.startswith(opened)

    def can_close(self, opened: str) -> bool:
        """Whether this line may close a block that `opened` opened."""
        return not self.info and self.reaches(opened)


class AnswerCleaner:
    r"""Takes the answer in pieces and gives back the code in it, in pieces.

    The same answer gives the same code however it is cut into pieces:

    - the first line that closes the opened block ends the code; the rest is dropped. A block
      opened inside the code, with a language, has a closing line of its own, which stays; so do
      as many bare fence lines as the source has just like it;
    - fence lines indented deeper than the code's first line are code;
    - a fence line at the very start, or after up to MAX_SENTENCES sentences there, opens the
      block again, unless the source has that line. A bare one that could close the block does
      so, unless the line before it announces code with a colon;
    - a bare fence that is too short closes the block, too, where it is the answer's last line
      and the source has no such line;
    - an end token ends the code, unless the source has it, too; `</s>` not after an `<s>`;
    - blank lines at the end become those at the source's end. Line ends become `\n`;
    - an answer that is nothing but an announcement, or blank, is empty.

    Attributes:
        finished: the closing fence or an end token has come; what follows is dropped.
    """

    def __init__(self, fence: str, source: str) -> None:
        source = to_lf(source)
        lines = source.split("\n")
        opened = _RUN.match(fence)
        self.finished = False
        self._over = False
        self._opened = opened.group() if opened else "```"
        self._inner = ""  # the fence of an open block inside the code
        self._source_lines = Counter(line.rstrip() for line in lines)
        self._source_tail = _blank_tail(source)
        self._source_announces = source.rstrip().endswith(":")
        self._source_indent = _indent(next((line for line in lines if line.strip()), ""))
        self._max_indent = 3
        self._end_tokens = tuple(token for token in END_TOKENS if token not in source)
        self._strikes = False
        self._raw = ""  # what may be the beginning of an end token, or half a line end
        self._start: list[str] | None = []  # lines held back at the very start; None after it
        self._line = ""  # the current line as far as it is held back
        self._in_line = False  # the current line's beginning was given back as code
        self._tail = ""  # blank lines that may be the last ones
        self._has_lines = self._has_code = False

    def feed(self, delta: str) -> str:
        """Take the next piece of the answer and return the code that is certain by now."""
        return "" if self._over else self._take(*self._before_end(self._raw + delta, last=False))

    def close(self) -> str:
        """Return what was held back, the answer being over."""
        if self._over:
            return ""
        text, _ = self._before_end(self._raw, last=True)
        code = self._take(text, ended=True)
        self._over = True
        return code

    def _take(self, text: str, ended: bool) -> str:
        code = ""
        *lines, rest = text.split("\n")
        for line in lines:
            self._line += line
            code += self._complete_line()
            if self._over:
                return code
        self._line += rest
        if not ended:
            return code + self._begin_line()
        if self._line and not self._closes_short(self._line):
            code += self._complete_line()
        return code if self._over else code + self._release_start(at_end=True) + self._finish()

    def _before_end(self, text: str, last: bool) -> tuple[str, bool]:
        """Return the text before what is or may become an end token, and whether it is one."""
        at = 0
        while (at := text.find("<", at)) >= 0:
            rest = text[at : at + _LONGEST_TOKEN]
            token = next((token for token in self._end_tokens if rest.startswith(token)), "")
            if token and not (token == "</s>" and self._strikes):
                self.finished = True
                return to_lf(text[:at]), True
            if not last and any(token.startswith(rest) for token in (*self._end_tokens, "<s>")):
                break
            # HTML strikes text out with <s>; what ends that is not the model's end token.
            self._strikes = self._strikes or rest.startswith(("<s>", "<s "))
            at += 1
        at = len(text) if at < 0 else at
        if not last and text[:at].endswith("\r"):
            at -= 1
        self._raw = text[at:]
        return to_lf(text[:at]), False

    def _begin_line(self) -> str:
        """Return what there is of the current line when it can only be code, else nothing."""
        held = self._line and not self._in_line
        if held and (_FENCE_BEGINNING.match(self._line) or self._may_be_sentence(self._line)):
            return ""
        code = self._release_start() + self._code(self._line) if self._line else ""
        self._in_line = self._in_line or bool(self._line)
        self._line = ""
        return code

    def _complete_line(self) -> str:
        line, self._line = self._line, ""
        if self._in_line:
            code = self._code(line)
            self._in_line = False
            return code
        fence = _fence_in(line)
        if self._start is not None:
            if fence and line.rstrip() not in self._source_lines:
                return self._fence_at_start(fence)
            if not line.strip(" \t") or self._is_sentence(line):
                self._start.append(line)
                return ""
        if fence and self._closes(fence, line):
            self.finished = True
            return self._finish()
        return self._release_start() + self._code(line)

    def _may_be_sentence(self, line: str) -> bool:
        """Whether the line, as far as it is there, may be one of the sentences at the start."""
        if self._start is None or not "A" <= line[:1] <= "Z" or len(line) > MAX_SENTENCE_CHARS:
            return False
        return sum(1 for held in self._start if held.strip()) < MAX_SENTENCES

    def _is_sentence(self, line: str) -> bool:
        known = line.rstrip() in self._source_lines
        return self._may_be_sentence(line) and not known and bool(_SENTENCE.match(line))

    def _announced(self) -> bool:
        said = [line for line in self._start or () if line.strip()]
        return bool(said) and said[-1].rstrip().endswith(":")

    def _fence_at_start(self, fence: _Fence) -> str:
        if fence.can_close(self._opened) and not self._announced():
            self.finished = True
            return self._release_start() + self._finish()
        self._opened = fence.run
        self._start = None
        return ""

    def _closes(self, fence: _Fence, line: str) -> bool:
        """Whether this fence line closes the opened block; keeps count of the blocks inside."""
        if fence.indent > self._max_indent or not fence.reaches(self._inner or self._opened):
            return False
        if fence.info:
            self._inner = self._inner or fence.run
            return False
        of_source = self._source_lines[line.rstrip()] > 0
        self._source_lines[line.rstrip()] -= 1
        if self._inner:
            self._inner = ""
            return False
        return not of_source

    def _closes_short(self, line: str) -> bool:
        """Whether the last line closes the opened block with too few backticks, out of habit."""
        fence = _fence_in(line)
        return (
            fence is not None
            and not (fence.info or self._in_line or self._inner)
            and fence.run != self._opened
            and self._opened.startswith(fence.run)
            and fence.indent <= self._max_indent
            and not self._source_lines[line.rstrip()]
        )

    def _release_start(self, at_end: bool = False) -> str:
        """Give back the lines held back at the start: no fence has followed them."""
        dropped = at_end and self._announced() and not self._source_announces
        held, self._start = self._start or (), None
        return "" if dropped else "".join(map(self._code, held))

    def _code(self, text: str) -> str:
        """Return the text, a line or a part of one, with the blank lines that were held back."""
        if not self._in_line:
            self._tail += "\n" if self._has_lines else ""
            self._has_lines = True
        if not text.strip(" \t") and (self._tail or not self._has_code):
            self._tail += text
            return ""
        if not self._has_code:
            self._has_code = True
            self._max_indent = max(3, min(self._source_indent, _indent(text)))
        text, self._tail = self._tail + text, ""
        return text

    def _finish(self) -> str:
        self._over = True
        return self._source_tail if self._has_code else ""


def _fence_in(line: str) -> _Fence | None:
    match = _FENCE.match(line)
    return _Fence(len(match[1]), match[2], match[3].strip()) if match else None


def _blank_tail(text: str) -> str:
    """Return the blank lines at the text's end, each with the line end before it."""
    _, line_end, rest = text[len(text.rstrip(" \t\n")) :].partition("\n")
    return line_end + rest


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))
