"""The way of an answer: cleaned, indented, turned into hunks, applied to the document."""

from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.core import Span
from lsp_server.text.answer import AnswerCleaner
from lsp_server.text.hunks import HunkStream, apply_hunks
from lsp_server.text.indent import IndentRestorer
from lsp_server.text.line_ends import to_lf

from .texts import LINE_ENDS, cut

BODY = ("x = 1", "    y()", "    return '日本😀'", "", "}", "z\t", "# \u2028 \f", "end ")


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(BODY), st.sampled_from(LINE_ENDS)), max_size=8),
    st.lists(st.sampled_from(BODY), max_size=8),
    st.sampled_from(("", "    ")),
    st.sampled_from(("", "```python\n", "Here is the code:\n```python\n")),
    st.sampled_from(("", "\n", "\n```", "\n```\n\nIt is done.", "<|im_end|>")),
    st.data(),
)
def test_whatever_surrounds_the_code_only_the_code_gets_into_the_document(
    old, new, moved, before, after, data
):
    inside = "start\r\n" + "".join(map("".join, old)) + "stop"
    document = f"\ufefftop\n{inside}\r\nbottom\r"
    span = Span(5, 5 + len(inside))
    code = "\n".join(["start", *new, "stop"])
    answer = before + "\n".join(moved + line if line else "" for line in code.split("\n")) + after

    cleaner, restorer = AnswerCleaner("```", to_lf(inside)), IndentRestorer(to_lf(inside))
    stream = HunkStream(document, span)
    text = ""
    for piece in data.draw(cut(answer)):
        text += restorer.feed(cleaner.feed(piece))
        stream.update(text)
    text += restorer.feed(cleaner.close()) + restorer.close()
    assert text == code

    result = apply_hunks(document, stream.finish(text))
    assert to_lf(result) == f"\ufefftop\n{code}\nbottom\n"
    assert result.startswith("\ufefftop\nstart\r\n")
    assert result.endswith("stop\r\nbottom\r")
