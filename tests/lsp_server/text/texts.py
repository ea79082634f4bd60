"""Texts that are hard on text logic, and ways to cut a text into pieces."""

from __future__ import annotations

from hypothesis import strategies as st

LINE_ENDS = ("\n", "\r\n", "\r")
# Astral, combining, a ZWJ family, what is no line end in LSP, and lone surrogates.
PIECES = (
    *LINE_ENDS,
    *("a", "b ", "}", "\t", "  ", "", "é", "ß", "e\u0301", "日本", "😀", "𝒳"),
    *("👩\u200d👩\u200d👧", "\f", "\v", "\x1c", "\x85", "\u2028", "\u2029", "\ud83d", "\ude00"),
)

hard_texts = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)
encodings = st.sampled_from(("utf-8", "utf-16", "utf-32"))


@st.composite
def cut(draw: st.DrawFn, text: str) -> list[str]:
    """Pieces that make up the text."""
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


def feed_all(machine, pieces) -> str:
    """What a streaming machine makes of the pieces."""
    return "".join(map(machine.feed, pieces)) + machine.close()
