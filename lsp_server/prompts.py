"""The prompt of a rewrite: the source first and verbatim, then the instruction, then the
opened answer fence.

Source first makes the prefix reusable when the same code is asked about again, and gives
look-up drafts the text they copy from.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from lsp_server.core import RewriteRequest
from lsp_server.languages import language_info
from lsp_server.text.line_ends import to_lf

SYSTEM = (
    "You are a careful programmer who edits code. You are given a piece of code and an "
    "instruction. You answer with the complete piece of code, changed as the instruction says. "
    "Everything that the instruction does not ask to change stays exactly as it is, comments "
    "and blank lines included."
)


class Prompt(NamedTuple):
    """What is sent to the model.

    Attributes:
        messages: OpenAI chat messages; the last is the assistant's, to be continued.
        source: the span's text with LF line ends, as it stands in the prompt.
        stop: texts that end the answer.
        fence: the fence that was opened, longer than any that begins a line of the source.
    """

    messages: list[dict[str, str]]
    source: str
    stop: list[str]
    fence: str


def build_prompt(request: RewriteRequest) -> Prompt:
    """Return the prompt for `request`."""
    source = to_lf(request.text[request.span.start : request.span.end])
    fence = fence_for(source)
    language = language_info(request.language)
    opening = f"{fence}{language.fence if language else ''}\n"
    context = f"\n{request.context.strip()}\n" if request.context.strip() else ""
    question = (
        f"{opening}{source}\n{fence}\n\n"
        f"Change this code as follows: {request.instruction.strip()}\n{context}\n"
        "Answer with the complete changed code in one code block, without explanations."
    )
    return Prompt(
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": question},
            {"role": "assistant", "content": opening},
        ],
        source=source,
        stop=[f"\n{fence}"],
        fence=fence,
    )


def fence_for(source: str) -> str:
    """Return a fence of backticks that the source cannot close.

    Only a run at the beginning of a line could. Small models close a longer fence with
    three backticks out of habit, so it is made longer only where it must be.
    """
    longest = max(map(len, re.findall(r"^[ \t]*(`+)", source, re.MULTILINE)), default=0)
    return "`" * max(3, longest + 1)
