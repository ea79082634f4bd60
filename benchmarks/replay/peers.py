"""Other systems' ways of drafting, as drafters of our interface, for comparison.

Each follows what its project's own files say (named in `PEERS`), in code of our own, except
for transformers', whose class is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from drafters.core import NO_DRAFT, Draft, DraftContext, Drafter


class _History:
    """Keeps prompt and answer."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.source: Sequence[int] = ()
        self.begun_at = 0

    def begin(self, context: DraftContext) -> None:
        """Take the prompt."""
        self.tokens = list(context.prompt)
        self.source = context.source
        self.begun_at = len(self.tokens)

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Append what was emitted."""
        self.tokens += [*accepted, next_token]


class Nothing(_History):
    """Plain decoding."""

    def propose(self, limit: int) -> Draft:
        """Return nothing."""
        return NO_DRAFT


class TransformersLookup(_History):
    """transformers' own PromptLookupCandidateGenerator with its defaults (Saxena 2023)."""

    def __init__(self, tokens: int = 10, ngram: int = 2) -> None:
        super().__init__()
        from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

        self._made: Any = PromptLookupCandidateGenerator(
            num_output_tokens=tokens, max_matching_ngram_size=ngram, max_length=1 << 30
        )

    def propose(self, limit: int) -> Draft:
        """Ask it."""
        import torch

        ids, _ = self._made.get_candidates(torch.tensor([self.tokens]))
        return Draft(ids[0, len(self.tokens) :].tolist()[:limit], "ngram")


class FirstMatch(_History):
    """The first occurrence of the longest match of `shortest` to `longest` tokens, as vLLM."""

    def __init__(self, shortest: int = 2, longest: int = 5, tokens: int = 20) -> None:
        super().__init__()
        self._range = range(longest, shortest - 1, -1)
        self._tokens = tokens

    def propose(self, limit: int) -> Draft:
        """Look from the beginning."""
        tokens = self.tokens
        for size in self._range:
            place = _first(tokens, size)
            if place is not None:
                return Draft(tokens[place : place + min(limit, self._tokens)], "ngram")
        return NO_DRAFT


class NgramMap(_History):
    """The last occurrence of the last `size` tokens, followed for `tokens`, as llama.cpp's
    n-gram map with its defaults.
    """

    def __init__(self, size: int = 12, tokens: int = 48) -> None:
        super().__init__()
        self._size, self._tokens = size, tokens

    def propose(self, limit: int) -> Draft:
        """Look from the end."""
        tokens, size = self.tokens, self._size
        wanted = tokens[-size:]
        for end in range(len(tokens) - 1, size - 1, -1):
            if tokens[end - 1] == wanted[-1] and tokens[end - size : end] == wanted:
                return Draft(tokens[end : end + min(limit, self._tokens)], "ngram")
        return NO_DRAFT


class Reuse(_History):
    """EfficientEdit's reuse without its draft model (arXiv 2506.02780): the whole rest of the
    source, taken up again where its `size` last tokens stand in the rest.
    """

    def __init__(self, size: int = 7) -> None:
        super().__init__()
        self._size = size
        self._place = 0
        self._lost = False

    def begin(self, context: DraftContext) -> None:
        """Stand at the beginning of the source."""
        super().begin(context)
        self._place, self._lost = 0, False

    def propose(self, limit: int) -> Draft:
        """Return the rest of the source, as far as the window reaches."""
        if self._lost:
            return NO_DRAFT
        return Draft(self.source[self._place : self._place + limit], "source")

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Go on, or look for the place again."""
        super().observe(accepted, next_token)
        place = self._place + len(accepted)
        if not self._lost and place < len(self.source) and self.source[place] == next_token:
            self._place = place + 1
            return
        if not self._lost:
            self._place = place
        self._lost = True
        last = self.tokens[-self._size :]
        if len(self.tokens) - self.begun_at < self._size:
            return
        for start in range(self._place, len(self.source) - self._size + 1):
            if list(self.source[start : start + self._size]) == last:
                self._place, self._lost = start + self._size, False
                return


class LongestMatch(_History):
    """The longest match of 1 to 32 tokens, the latest of equals: the best simple look-up."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, list[int]] = {}

    def begin(self, context: DraftContext) -> None:
        """Index the prompt."""
        super().begin(context)
        self._places = {}
        for place, token in enumerate(self.tokens):
            self._places.setdefault(token, []).append(place)

    def observe(self, accepted: Sequence[int], next_token: int) -> None:
        """Index what was emitted."""
        for token in (*accepted, next_token):
            self._places.setdefault(token, []).append(len(self.tokens))
            self.tokens.append(token)

    def propose(self, limit: int) -> Draft:
        """Compare all places of the last token."""
        tokens = self.tokens
        best, longest = -1, 0
        for place in reversed(self._places.get(tokens[-1], ())):
            length = 0
            while length < 32 and length <= place and tokens[place - length] == tokens[-1 - length]:
                length += 1
            if place < len(tokens) - 1 and length > longest:
                best, longest = place, length
        if best < 0:
            return NO_DRAFT
        return Draft(tokens[best + 1 : best + 1 + limit], "ngram")


def _first(tokens: Sequence[int], size: int) -> int | None:
    """Return where what follows the first earlier occurrence of the last `size` begins."""
    if len(tokens) <= size:
        return None
    wanted = list(tokens[-size:])
    for end in range(size, len(tokens)):
        if tokens[end - 1] == wanted[-1] and list(tokens[end - size : end]) == wanted:
            return end
    return None


PEERS: dict[str, Callable[[], Drafter]] = {
    "none": Nothing,
    "transformers": TransformersLookup,
    "vllm-ngram": FirstMatch,
    "llama-ngram-map": NgramMap,
    "efficientedit-reuse": Reuse,
    "longest-match": LongestMatch,
}
