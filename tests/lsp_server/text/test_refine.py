"""What of a hunk is shown as changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.text.refine import MAX_TOKENS, Part, refine

texts = st.text("ab_ .(\t\r\n🙂é", max_size=40)


@given(texts, texts)
def test_putting_the_parts_into_the_old_text_gives_the_new_one(old: str, new: str) -> None:
    text, at = "", 0
    for part in refine(old, new):
        assert at <= part.old_start <= part.old_end
        assert part.old_start < part.old_end or part.new_start < part.new_end
        text += old[at : part.old_start]
        assert len(text) == part.new_start
        text += new[part.new_start : part.new_end]
        at = part.old_end
    assert text + old[at:] == new


@pytest.mark.parametrize(
    ("old", "new", "parts"),
    [
        ("x = size + 1", "x = surface + 1", (Part(4, 8, 4, 11),)),
        ("f(a)", "f(a, b)", (Part(3, 3, 3, 6),)),
        ("f(a, b)", "f(a)", (Part(3, 6, 3, 3),)),
        ("", "new\n", (Part(0, 0, 0, 4),)),
        ("same", "same", ()),
        ("🙂 = one", "🙂 = two", (Part(4, 7, 4, 7),)),
    ],
)
def test_only_the_changed_tokens_are_parts(old: str, new: str, parts: tuple[Part, ...]) -> None:
    assert refine(old, new) == parts


def test_a_long_hunk_is_one_part() -> None:
    old = "a " * MAX_TOKENS
    assert refine(old, old + "b") == (Part(0, len(old), 0, len(old) + 1),)
