"""The source ahead, as it would look if what was done so far were done to it too.

The memory of edits (drafters/memory.py) and the change of indentation that the last lines
had are applied to the source from a place on, line by line, and what they change is
tokenised again.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from drafters.memory import Key, Memory, Rule, Site
from drafters.text import CHUNK, Text

BYTES_A_TOKEN = 5
"""How far ahead rules are looked for, for each token asked for."""

GOES_ON = 0.93
"""Chance that a shifted line is followed by another, once one was."""

_INDENT = re.compile(rb"[ \t]*")


class Choice(NamedTuple):
    """A place in projected tokens where a rule changes what the source says.

    Attributes:
        chance: that the rule holds here.
        rule: learns whether it did.
        plain: index of the source token that stands here otherwise; None where another
            rule has changed the line before.
    """

    chance: float
    rule: Rule
    plain: int | None


class Projection(NamedTuple):
    """Tokens that may follow, with the choices in them by index."""

    tokens: list[int]
    choices: dict[int, Choice]


class Projector:
    """Projects one source.

    Args:
        source: its token ids.
        text: the answer so far; knows how to tokenise.
        memory: the rules.
    """

    def __init__(self, source: list[int], text: Text, memory: Memory) -> None:
        self.source = source
        self.memory = memory
        self._text = text
        self.offsets = [0]
        for token in source:
            self.offsets.append(self.offsets[-1] + len(text.pieces(token)))
        self.bytes = b"".join(map(text.pieces, source))
        self.place_at = {offset: place for place, offset in enumerate(self.offsets)}
        self._shift: Rule | None = None
        self._shifts: dict[tuple[bytes, bytes], Rule] = {}

    def note_line(self, written: bytes, source_line: int) -> None:
        """Learn how the indentation of a finished line differs from its source line's.

        Args:
            written: the line as the answer has it.
            source_line: offset in bytes of the line that it was made from.
        """
        if not written.strip():
            return
        old, new = _indent(self.bytes, source_line), _indent(written, 0)
        change = (b"", new[len(old) :]) if new.startswith(old) else (old[len(new) :], b"")
        if old == new or not (new.startswith(old) or old.startswith(new)):
            self._shift = None
            return
        self._shift = self._shifts.get(change)
        if self._shift is None:
            if len(self._shifts) > 16:
                self._shifts.clear()
            rule = Rule(Key(b"", change[0], b""), change[1], 2.0, 1.0)
            self._shift = self._shifts[change] = rule
        else:
            self._shift.hits += 0.5

    def project(self, place: int, limit: int) -> Projection | None:
        """Return at most about `limit` tokens from a place on; None where no rule applies."""
        start = self.offsets[place]
        end = min(start + BYTES_A_TOKEN * limit, len(self.bytes))
        sites = self.memory.sites(start, end) if len(self.memory) else []
        if not sites and self._shift is None:
            return None
        return self._project(start, end, limit, sites)

    def _project(self, start: int, end: int, limit: int, sites: list[Site]) -> Projection | None:
        tokens: list[int] = []
        choices: dict[int, Choice] = {}
        shifted_before = False
        position, next_site = start, 0
        while position < end and len(tokens) < limit:
            line = CHUNK.match(self.bytes, position)
            if line is None:
                break
            stop = line.end()
            here = []
            while next_site < len(sites) and sites[next_site].start < stop:
                if sites[next_site].end <= stop:
                    here.append(sites[next_site])
                next_site += 1
            whole = position > start or self._text.at_line_start
            shift = self._shift if whole and self._fits(line.group(), position) else None
            if shift is None and not here:
                first, last = self.place_at.get(position), self.place_at.get(stop)
                if first is None or last is None:
                    break
                tokens += self.source[first:last]
            else:
                text, changes = self._changed(position, stop, here, shift, shifted_before)
                shifted_before = shifted_before or shift is not None
                made = (
                    self._text.continued(text) if position == start else (self._text.tokenize(text))
                )
                if made is None:
                    break
                self._choose(tokens, choices, made, position, changes)
            position = stop
        return Projection(tokens, choices) if choices else None

    def _fits(self, line: bytes, position: int) -> bool:
        # The closing fence is never indented.
        if self._shift is None or not line.strip() or line.startswith(b"```"):
            return False
        return self.bytes.startswith(self._shift.key.old, position)

    def _changed(
        self, position: int, stop: int, sites: list[Site], shift: Rule | None, again: bool
    ) -> tuple[bytes, list[tuple[int, float, Rule]]]:
        """Return a line with the rules applied, and (offset in it, chance, rule) of each."""
        parts: list[bytes] = []
        changes: list[tuple[int, float, Rule]] = []
        length = 0
        if shift is not None:
            parts.append(shift.new)
            length = len(shift.new)
            position += len(shift.key.old)
            changes.append((0, GOES_ON if again else shift.chance, shift))
        for start, end, rule in sites:
            if start < position:
                continue
            changes.append((length + start - position, rule.chance, rule))
            parts += (self.bytes[position:start], rule.new)
            length += start - position + len(rule.new)
            position = end
        parts.append(self.bytes[position:stop])
        return b"".join(parts), changes

    def _choose(
        self,
        tokens: list[int],
        choices: dict[int, Choice],
        made: list[int],
        position: int,
        changes: list[tuple[int, float, Rule]],
    ) -> None:
        """Append the tokens of a changed line, and say where in them the rules act."""
        base = len(tokens)
        place = self.place_at.get(position)
        same = 0
        if place is not None:
            ahead = self.source[place : place + len(made)]
            while same < len(ahead) and made[same] == ahead[same]:
                same += 1
        plain = None if place is None else place + same
        index = covered = 0
        for offset, chance, rule in changes:
            while index < len(made) and covered + len(self._text.pieces(made[index])) <= offset:
                covered += len(self._text.pieces(made[index]))
                index += 1
            # The first change may show a token earlier, where it alters the borders.
            choices.setdefault(
                base + (index if plain is None else same), Choice(chance, rule, plain)
            )
            plain = None
        tokens += made


def _indent(text: bytes, start: int) -> bytes:
    found = _INDENT.match(text, start, start + 200)
    return found.group() if found else b""
