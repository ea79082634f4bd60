from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.core import RewriteRequest, Span
from lsp_server.prompts import build_prompt, fence_for


def request(text: str, language: str = "python", start: int = 0) -> RewriteRequest:
    return RewriteRequest(text, Span(start, len(text)), language, "  rename a to b\n")


def test_the_source_comes_first_then_the_instruction_then_the_opened_fence() -> None:
    prompt = build_prompt(request("x = 0\ndef f():\n    return a", start=6))
    system, question, answer = prompt.messages
    assert [m["role"] for m in prompt.messages] == ["system", "user", "assistant"]
    assert system["content"]
    source = "def f():\n    return a"
    assert question["content"].startswith(
        f"```python\n{source}\n```\n\nChange this code as follows: rename a to b\n"
    )
    assert (prompt.source, prompt.fence, prompt.stop) == (source, "```", ["\n```"])
    assert answer["content"] == "```python\n"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_the_model_sees_line_feeds_only(line_end) -> None:
    prompt = build_prompt(request(f"a = 1{line_end}b = 2{line_end}"))
    assert prompt.source == "a = 1\nb = 2\n"


def test_a_language_that_is_not_known_has_a_bare_fence() -> None:
    assert build_prompt(request("a b c", language="")).messages[-1]["content"] == "```\n"


@given(st.text(st.sampled_from("`a\n ")))
def test_no_source_can_close_its_fence(source) -> None:
    fence = fence_for(source)
    assert len(fence) >= 3
    assert set(fence) == {"`"}
    assert not re.search(rf"^[ \t]*{fence}", source, re.MULTILINE)


@pytest.mark.parametrize(
    ("source", "length"),
    [("s = '```'", 3), ("x\n```\ny", 4), ("x\n    ````py\ny", 5), ("# a\n#  ```\n", 3)],
)
def test_only_a_fence_at_the_beginning_of_a_line_makes_a_longer_one(source, length) -> None:
    assert fence_for(source) == "`" * length
