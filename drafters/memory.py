"""What was replaced by what so far in this rewrite, to be applied again further down.

An edit is often one idea repeated: a renamed identifier, an added `self.`, a dropped `;`,
a deeper indentation. Each replacement that the answer has made becomes rules: the replaced
text alone, and with a lexeme to the left and to the right of it, since an insertion says
little without its neighbours. A rule knows how often it held. The idea is that of editing
by example (Gulwani 2011), kept to what can be looked up in microseconds.

All positions are offsets in bytes of the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

RULES = 64
"""Rules kept; the one that helped least makes room."""

LONGEST = 120
"""Longest text, in bytes, that a rule replaces or puts in."""

SITES = 6
"""Places looked at for one rule at a time, nearest first."""

LEXEME = 24
"""Longest neighbour, in bytes."""

_WORD_END = re.compile(rb"[\w\x80-\xff]+\Z")
_WORD_START = re.compile(rb"[\w\x80-\xff]+")


class Key(NamedTuple):
    """Where a rule applies: `old` with these neighbours; an empty neighbour is any."""

    left: bytes
    old: bytes
    right: bytes


class Rule:
    """One replacement and how often it held.

    Attributes:
        key: where it applies.
        new: what stands there afterwards.
        hits, misses: how often it held and did not, prior included.
    """

    __slots__ = ("hits", "key", "misses", "new")

    def __init__(self, key: Key, new: bytes, hits: float, misses: float) -> None:
        self.key = key
        self.new = new
        self.hits = hits
        self.misses = misses

    @property
    def chance(self) -> float:
        """The chance that it holds at the next place where it applies."""
        return self.hits / (self.hits + self.misses)


class Site(NamedTuple):
    """A place where a rule applies: `source[start:end]` would become `rule.new`."""

    start: int
    end: int
    rule: Rule


class Memory:
    """The rules of one rewrite.

    Args:
        source: the text being rewritten.
        seeds: replacements that the instruction names, as (old, new).
    """

    def __init__(self, source: bytes, seeds: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._source = source
        self._rules: dict[Key, Rule] = {}
        self.version = 0
        for old, new in seeds:
            self._add(Key(b"", old, b""), new, *SEEDED)

    def __len__(self) -> int:
        return len(self._rules)

    def learn(self, start: int, end: int, new: bytes) -> None:
        """Remember that `source[start:end]` became `new`."""
        start, end, new = _to_words(self._source, start, end, new)
        old = self._source[start:end]
        if old == new or len(old) > LONGEST or len(new) > LONGEST:
            return
        blank = not old.strip() and not new.strip()
        if blank and not self._source[self._source.rfind(b"\n", 0, start) + 1 : start].strip():
            return  # indentation is another matter
        left, right = _left(self._source, start), _right(self._source, end)
        if old.strip() and (_WORD_START.search(old) or len(old) > 2):
            self._add(Key(b"", old, b""), new, *ALONE)
        if right.strip(b" \t"):
            # Something put before a word is most often about that word.
            word = not blank and not old and len(right) > 1
            self._add(Key(b"", old, right), new, *(ALONE if word else ONE_SIDE))
        if left.strip(b" \t"):
            self._add(Key(left, old, b""), new, *ONE_SIDE)
        if left and right:
            self._add(Key(left, old, right), new, *BOTH_SIDES)

    def sites(self, start: int, end: int) -> list[Site]:
        """Return where rules apply in `source[start:end]`, ordered, without overlaps.

        Of two that overlap, the likelier stays. Unlikely ones are told only right at the
        start, where they can be tried beside the plain text without spoiling what follows.
        """
        found: list[Site] = []
        for rule in self._rules.values():
            chance = rule.chance
            if chance >= APPLIED:
                self._find(rule, start, end, found)
            elif chance >= LEAST_CHANCE:
                self._find(rule, start, start, found)
        found.sort(key=lambda site: site.start)
        chosen: list[Site] = []
        for site in found:
            last = chosen[-1] if chosen else None
            if last is None or (site.start >= last.end and site.start > last.start):
                chosen.append(site)
            elif site.rule.chance > last.rule.chance:
                chosen[-1] = site
        return chosen

    def _find(self, rule: Rule, start: int, end: int, found: list[Site]) -> None:
        left, old, right = rule.key
        source = self._source
        pattern = left + old + right
        furthest = end + len(pattern) - len(left)
        at = source.find(pattern, max(start - len(left), 0), furthest)
        left_to_find = SITES
        while at >= 0 and left_to_find:
            left_to_find -= 1
            first, last = at + len(left), at + len(left) + len(old)
            if (
                first >= start
                and _is_border(source, at, pattern[0])
                and _is_border_behind(source, at + len(pattern), pattern[-1])
            ):
                found.append(Site(first, last, rule))
            at = source.find(pattern, at + 1, furthest)

    def _add(self, key: Key, new: bytes, hits: float, misses: float) -> None:
        known = self._rules.get(key)
        if known is not None:
            if known.new == new:
                known.hits += 1.0
                return
            known.misses += 1.0
            if known.chance > 0.3:
                return
        self._rules[key] = Rule(key, new, hits, misses)
        self.version += 1
        if len(self._rules) > RULES:
            least = min(list(self._rules.values())[:-8], key=lambda rule: rule.chance)
            del self._rules[least.key]


SEEDED = (1.5, 0.7)
ALONE = (0.9, 1.1)
ONE_SIDE = (0.5, 1.5)
BOTH_SIDES = (1.0, 0.8)
"""Hits and misses that each kind of rule begins with."""

LEAST_CHANCE = 0.12
"""Rules that hold less often are not looked up."""

APPLIED = 0.4
"""Rules that hold at least so often are applied ahead."""


def _is_word(byte: int) -> bool:
    return byte == 95 or 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 or byte > 127


def _is_border(source: bytes, at: int, first: int) -> bool:
    return at == 0 or not _is_word(first) or not _is_word(source[at - 1])


def _is_border_behind(source: bytes, end: int, last: int) -> bool:
    return end >= len(source) or not _is_word(last) or not _is_word(source[end])


def _left(source: bytes, at: int) -> bytes:
    before = source[max(at - LEXEME, 0) : at]
    word = _WORD_END.search(before)
    return word.group() if word else before[-1:]


def _right(source: bytes, at: int) -> bytes:
    word = _WORD_START.match(source, at, at + LEXEME)
    return word.group() if word else source[at : at + 1]


def _to_words(source: bytes, start: int, end: int, new: bytes) -> tuple[int, int, bytes]:
    """Strip what both sides share, then widen to whole words."""
    old = source[start:end]
    most = min(len(old), len(new))
    head = 0
    while head < most and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < most - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    start, end, new = start + head, end - tail, new[head : len(new) - tail]
    inner_first = new[:1] or source[start:end][:1]
    while start > 0 and _is_word(source[start - 1]) and inner_first and _is_word(inner_first[0]):
        start -= 1
        new = source[start : start + 1] + new
        inner_first = new[:1]
    inner_last = new[-1:] or source[start:end][-1:]
    while end < len(source) and _is_word(source[end]) and inner_last and _is_word(inner_last[0]):
        new += source[end : end + 1]
        inner_last = new[-1:]
        end += 1
    return start, end, new
