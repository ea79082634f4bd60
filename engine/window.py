"""How long a draft to ask for: a simple rule that follows what was accepted lately.

Long drafts pay where text is copied and cost where it is new. The length doubles when a
whole draft was accepted and falls to what was accepted when one was cut. (To be replaced
by the cost model: expected tokens a second from measured pass times.)
"""

from __future__ import annotations

FIRST = 8
SHORTEST = 2
DOUBTED = 4
"""Draft length tried when the drafter itself is not sure."""

SURE = 0.7


class WindowPolicy:
    """Chooses the draft length of the next pass.

    Args:
        longest: most tokens ever drafted in one pass.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._length = min(FIRST, longest)

    @property
    def limit(self) -> int:
        """Most tokens that the next draft should hold."""
        return self._length

    def cut(self, drafted: int, confidence: float) -> int:
        """Return how many of `drafted` tokens to verify."""
        return drafted if confidence >= SURE else min(drafted, DOUBTED)

    def observe(self, drafted: int, accepted: int) -> None:
        """Learn from one pass."""
        if not drafted:
            return
        if accepted == drafted:
            self._length = min(2 * max(self._length, accepted), self._longest)
        else:
            self._length = min(max(accepted + 1, SHORTEST, self._length // 2), self._longest)
