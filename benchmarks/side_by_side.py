"""Runs an answer with drafts and one without beside each other, a short stretch at a time.

On a machine that others use, too, two runs one after the other differ by more than what is
looked for. So neither is ever more than a stretch ahead, who goes first changes from
stretch to stretch (ABBA), and a moment of noise falls on both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from drafters.core import Draft, DraftContext, Drafter
from engine import generation
from engine.core import (
    Event,
    Finished,
    GenerationRequest,
    GenerationStats,
    Generator,
    Message,
    TextDelta,
    never_cancelled,
)
from engine.window import WindowPolicy

STRETCH = 8
"""Tokens of a stretch: about a second on a CPU."""


class OnePass(NamedTuple):
    """Rows of a pass, its seconds without the drafter's, and how many drafted tokens were right."""

    rows: int
    seconds: float
    accepted: int = 0


@dataclass(slots=True)
class Answer:
    """One of the two answers, as far as it is written.

    Attributes:
        events: of the engine.
        passes: that were run.
        drafter_seconds: in the drafters, their preparation included.
        tokens, seconds: of decoding, so far.
        stats: at the end.
    """

    events: Iterator[Event]
    text: str = ""
    passes: list[OnePass] = field(default_factory=list)
    drafter_seconds: float = 0.0
    begin_seconds: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    stats: GenerationStats | None = None

    def advance(self, tokens: int) -> None:
        """Go on until `tokens` are written, or to the end."""
        while self.stats is None and self.tokens < tokens:
            event = next(self.events)
            if isinstance(event, TextDelta):
                self.text += event.text
                self.tokens, self.seconds = event.tokens, event.seconds
            elif isinstance(event, Finished):
                self.stats = event.stats
                self.tokens, self.seconds = event.stats.tokens, event.stats.decode_seconds

    @property
    def whole_seconds(self) -> float:
        """Seconds of decoding and of preparing the drafters, which the engine's own leave out."""
        return self.seconds + self.begin_seconds


class Pair(NamedTuple):
    """Both answers to one prompt, whole."""

    drafted: Answer
    plain: Answer

    @property
    def ratio(self) -> float:
        """Seconds a token with drafts / without."""
        return (self.drafted.whole_seconds / self.drafted.tokens) / (
            self.plain.whole_seconds / self.plain.tokens
        )


def answer_both(host: Generator, model: str, prompt: str, tokens: int, plain_first: bool) -> Pair:
    """Answer a prompt twice, beside each other."""
    pair = Pair(*(_begin(host, model, prompt, tokens, draft) for draft in (True, False)))
    order = pair[::-1] if plain_first else pair
    reached = 0
    while any(answer.stats is None for answer in pair):
        reached += STRETCH
        for answer in order:
            answer.advance(reached)
        order = order[::-1]
    return pair


def _begin(host: Generator, model: str, prompt: str, tokens: int, draft: bool) -> Answer:
    request = GenerationRequest(model, (Message("user", prompt),), max_tokens=tokens, draft=draft)
    answer = Answer(iter(host.generate(request, never_cancelled)))
    # Reading the prompt is not what is compared, and the second reads what the first has.
    with _watched(answer):
        answer.advance(1)
    return answer


@contextmanager
def _watched(answer: Answer) -> Iterator[None]:
    """Let what the engine makes meanwhile, a drafter and a policy, report to `answer`.

    It makes them before the first pass.
    """
    make_drafter, policy = generation._drafter, generation.WindowPolicy

    def watched_drafter(request: GenerationRequest, session: object, trees: bool) -> Drafter | None:
        made = make_drafter(request, session, trees)  # type: ignore[arg-type]
        return None if made is None else _TimedDrafter(made, answer)

    class WatchedPolicy(WindowPolicy):
        def observe(
            self,
            draft: Draft,
            verified: Sequence[int],
            path: Sequence[int],
            next_token: int,
            context: int,
            seconds: float,
        ) -> None:
            answer.passes.append(OnePass(len(verified) + 1, seconds, len(path)))
            super().observe(draft, verified, path, next_token, context, seconds)

    generation._drafter, generation.WindowPolicy = watched_drafter, WatchedPolicy  # type: ignore
    try:
        yield
    finally:
        generation._drafter, generation.WindowPolicy = make_drafter, policy  # type: ignore


class _TimedDrafter:
    """Adds the time of another drafter up."""

    def __init__(self, drafter: Drafter, answer: Answer) -> None:
        self._drafter = drafter
        self._answer = answer

    def begin(self, context: DraftContext) -> None:
        with self._timed():
            self._drafter.begin(context)
        self._answer.begin_seconds = self._answer.drafter_seconds

    def propose(self, limit: int) -> Draft:
        with self._timed():
            return self._drafter.propose(limit)

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        with self._timed():
            self._drafter.observe(accepted, next_token)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._answer.drafter_seconds += time.perf_counter() - started
