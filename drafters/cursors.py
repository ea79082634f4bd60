"""Runs of tokens that the answer may go on with from here, and why.

The source from each alignment hypothesis on, from places near the last divergence, from
inside a token there, and the source as the edit memory changes it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from drafters.alignment import Alignment
from drafters.odds import (
    ANCHOR,
    CHANGED,
    CONTRADICTED,
    HYPOTHESIS,
    INSIDE,
    LENGTH_STEP,
    RUN_STEP,
    WORKSPACE_RUN,
    since_step,
)
from drafters.projection import Choice, Projector
from drafters.text import CHUNK, Text
from drafters.workspace import WorkspaceLookup

HYPOTHESES = 6
"""Alignment hypotheses looked at."""

SURE = 7
"""Run of matches from which a copy is followed without looking at anything else."""

LINES_AHEAD = 5
"""Line starts behind the divergence that are tried."""

LONGEST_REST = 200
"""Longest rest of a line, in bytes, that is tokenised for one try."""

WORKSPACE_RUNS = 3
"""Matches in the workspace that are followed, the longest."""

NO_CHOICES: Mapping[int, Choice] = {}


class Cursor(NamedTuple):
    """A place in a run of tokens.

    Attributes:
        tokens: the run.
        index: of the token that comes next.
        run: matches in a row up to here.
        feature: the reason, for the odds (drafters/odds.py).
        choices: where in the run a rule of the memory acts.
        origin: of a draft made from it.
    """

    tokens: Sequence[int]
    index: int  # type: ignore[assignment]
    run: int
    feature: int
    choices: Mapping[int, Choice] = NO_CHOICES
    origin: str = "source"


def source_cursors(
    alignment: Alignment,
    line_starts: Sequence[int],
    text: Text | None,
    projector: Projector | None,
    at_line_start: bool,
    limit: int,
) -> list[Cursor]:
    """Return the ways on from here, the likeliest hypothesis first."""
    source, beam = alignment.source, alignment.beam
    line = int(at_line_start)
    place, _, run = beam[0]
    cursors = [
        Cursor(source, h.place, h.run, hypothesis_feature(min(rank, 3), h.run, line))
        for rank, h in enumerate(beam[:HYPOTHESES])
    ]
    if projector is not None and place < len(source):
        projection = projector.project(place, limit)
        if projection is not None:
            choice = projection.choices.get(0)
            sure = choice is not None and choice.chance > 0.6
            if choice is not None:
                cursors[0] = cursors[0]._replace(feature=contradicted_feature(choice))
            cursors.append(
                Cursor(
                    projection.tokens,
                    0,
                    max(run, SURE) if sure else run,
                    changed_feature(choice),
                    projection.choices,
                    "memory",
                )
            )
    since = since_step(alignment.unmatched)
    if alignment.is_firm and run >= 8:
        return cursors
    cursors += _near_divergence(alignment, line_starts, since, line)
    if text is not None and projector is not None:
        cursors += _inside_tokens(alignment, text, projector, since, line, limit)
    return cursors


def workspace_cursors(lookup: WorkspaceLookup, history: Sequence[int]) -> list[Cursor]:
    """Return where the workspace's files go on from the last tokens, the longest match first."""
    tokens = lookup.index.tokens
    return [
        Cursor(tokens, place, length, workspace_feature(length, rank), origin="workspace")
        for rank, (place, length) in enumerate(lookup.matches(history)[:WORKSPACE_RUNS])
    ]


def workspace_feature(length: int, rank: int) -> int:
    """Return the feature of a match in the workspace."""
    return WORKSPACE_RUN + LENGTH_STEP[min(length, 32)] * 2 + min(rank, 1)


def hypothesis_feature(rank: int, run: int, line: int) -> int:
    """Return the feature of a copy from the source."""
    return HYPOTHESIS + (min(rank, 4) * 7 + RUN_STEP[min(run, 32)]) * 2 + line


def anchor_feature(which: int, since: int, line: int) -> int:
    """Return the feature of a place near the divergence, from 0 to 11."""
    return ANCHOR + (which * 4 + since) * 2 + line


def changed_feature(choice: Choice | None) -> int:
    """Return the feature of the source as the memory changes it."""
    return CHANGED + (8 if choice is None else min(int(choice.chance * 8), 7))


def contradicted_feature(choice: Choice) -> int:
    """Return the feature of a plain copy where a rule says otherwise."""
    return CONTRADICTED + min(int(choice.chance * 8), 7)


def _near_divergence(
    alignment: Alignment, line_starts: Sequence[int], since: int, line: int
) -> list[Cursor]:
    source, here = alignment.source, alignment.divergence
    places = [(here, 0), (here + 1, 1), (here + 2, 2)]
    behind = bisect_right(line_starts, here)
    places += [
        (place, 3 + step) for step, place in enumerate(line_starts[behind : behind + LINES_AHEAD])
    ]
    # The line itself once more: something was put before it.
    if behind:
        places.append((line_starts[behind - 1], 8))
    if alignment.earlier != here:
        places.append((alignment.earlier, 9))
    return [Cursor(source, place, 0, anchor_feature(which, since, line)) for place, which in places]


def _inside_tokens(
    alignment: Alignment, text: Text, projector: Projector, since: int, line: int, limit: int
) -> list[Cursor]:
    """Return ways on that begin inside a source token or join what was written."""
    opened, here, source = alignment.open_edit, alignment.divergence, projector.bytes
    if opened is None or text.at_line_start or here >= len(alignment.source):
        return []
    if opened + 1 >= len(text.ends) or text.ends[opened] < text.line:
        return []
    cursors = []
    for which, offset in enumerate(
        _offsets_inside(source, projector.offsets[here], bytes(text.written[text.ends[opened] :]))
    ):
        rest = CHUNK.match(source, offset)
        following = projector.place_at.get(rest.end()) if rest else None
        if rest is None or following is None or rest.end() - offset > LONGEST_REST:
            continue
        tokens = text.continued(rest.group())
        if not tokens:
            continue
        place = projector.place_at.get(offset)
        if place is not None and alignment.source[place] == tokens[0]:
            continue  # the same as a copy
        run = [*tokens, *alignment.source[following : following + max(limit - len(tokens), 0)]]
        cursors.append(Cursor(run, 0, 0, INSIDE + (which * 4 + since) * 2 + line))
    return cursors


def _offsets_inside(source: bytes, start: int, written: bytes) -> list[int]:
    """Return offsets where the source may go on after `written` stands at `start`.

    Behind what both begin with, the same without spaces, behind the next word of the
    source, and the same without spaces.
    """
    end = len(source)
    for index, byte in enumerate(written):
        if start + index >= end or source[start + index] != byte:
            written = written[:index]
            break
    same = start + len(written)
    offsets = [same, _skip(source, same, _is_space)]
    word = same
    if word < end and not _is_word(source[word]):
        word += 1
    word = _skip(source, word, _is_word)
    offsets += [word, _skip(source, word, _is_space)]
    return [
        offset
        for index, offset in enumerate(offsets)
        if offset < end and offset not in offsets[:index]
    ]


def _skip(source: bytes, start: int, matches: object) -> int:
    while start < len(source) and matches(source[start]):  # type: ignore[operator]
        start += 1
    return start


def _is_space(byte: int) -> bool:
    return byte in (32, 9)


def _is_word(byte: int) -> bool:
    return byte == 95 or 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122 or byte > 127
