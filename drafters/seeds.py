"""Replacements that the instruction names: "rename a to b", "use `x` instead of `y`".

Identifiers are taken in all their case variants together, as a rename means them: fooBar,
FooBar, foo_bar, FOO_BAR, foo-bar.
"""

from __future__ import annotations

import re
from collections.abc import Callable

SEEDS = 24
"""Most replacements taken from one instruction."""

_QUOTED = r"`([^`\n]{1,80})`|\"([^\"\n]{1,80})\"|'([^'\n]{1,80})'"
_TERM = rf"(?:{_QUOTED}|([\w$][\w$.:-]*(?:\(\))?))"
_FORWARD = re.compile(
    rf"{_TERM}\s+(?:to|with|by|into|as|->|=>|\u2192|in favou?r of)\s+"
    rf"(?:(?:the|a|an|use|using)\s+)?{_TERM}",
    re.IGNORECASE,
)
_BACKWARD = re.compile(
    rf"{_TERM}\s+(?:instead of|rather than|in place of|over)\s+(?:(?:the|a|an|using)\s+)?{_TERM}",
    re.IGNORECASE,
)
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

_VARIANTS: tuple[Callable[[list[str]], str], ...] = (
    lambda words: "_".join(words),
    lambda words: "_".join(words).upper(),
    lambda words: words[0] + "".join(word.capitalize() for word in words[1:]),
    lambda words: "".join(word.capitalize() for word in words),
    lambda words: "-".join(words),
    lambda words: "".join(words),
)


def seeds(instruction: str, source: str) -> list[tuple[str, str]]:
    """Return (old, new) pairs that the instruction names and whose old text is in the source."""
    pairs: dict[str, str] = {}
    for pattern, forward in ((_FORWARD, True), (_BACKWARD, False)):
        for match in pattern.finditer(instruction[:4000]):
            groups = match.groups()
            first = next((g for g in groups[:4] if g), "").rstrip(".:-")
            second = next((g for g in groups[4:] if g), "").rstrip(".:-")
            old, new = (first, second) if forward else (second, first)
            for before, after in variants(old, new):
                if before != after and len(before) > 1 and before in source:
                    pairs.setdefault(before, after)
            if len(pairs) >= SEEDS:
                return list(pairs.items())[:SEEDS]
    return list(pairs.items())


def variants(old: str, new: str) -> list[tuple[str, str]]:
    """Return the pair itself, then its case variants where both are identifiers."""
    pairs = {old: new}
    if re.fullmatch(r"[\w-]+", old) and re.fullmatch(r"[\w-]+", new):
        old_words = [word.lower() for word in _WORDS.findall(old)]
        new_words = [word.lower() for word in _WORDS.findall(new)]
        if old_words and new_words:
            for variant in _VARIANTS:
                pairs.setdefault(variant(old_words), variant(new_words))
    return list(pairs.items())
