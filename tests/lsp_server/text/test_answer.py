import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.text.answer import END_TOKENS, AnswerCleaner

from .texts import cut, feed_all

SOURCE = "def f(x):\n    return x"
METHOD = "    def f(self):\n        return 1"
MARKDOWN = "# Use\n\n```sh\nmake\n```\n\nEnd."


def clean(answer: str, source: str = SOURCE, fence: str = "```") -> str:
    return feed_all(AnswerCleaner(fence, source), [answer])


@pytest.mark.parametrize(
    ("answer", "source", "expected"),
    [
        ("a\n```", SOURCE, "a"),
        ("a\n```\n", SOURCE, "a\n```"),
        ("a\n```\nb\n````", SOURCE, "a\n```\nb"),
        ("a\n~~~", SOURCE, "a\n~~~"),
        ("a\n```", MARKDOWN, "a\n```"),
    ],
)
def test_a_fence_that_is_too_short_closes_only_as_the_last_line(answer, source, expected) -> None:
    assert clean(answer, source, fence="````") == expected


@pytest.mark.parametrize(
    ("case", "answer", "expected"),
    [
        ("closed", "def g():\n    pass\n```", "def g():\n    pass"),
        ("closed with a line end", "def g():\n    pass\n```\n", "def g():\n    pass"),
        ("closed, then talk", "a\n```\n\nThis renames f.", "a"),
        ("closed by a longer fence", "a\n`````\nb", "a"),
        ("closed, white space behind", "a\n```  \nb", "a"),
        ("closed, indented by three", "a\n   ```\nb", "a"),
        ("not closed", "a\n  b", "a\n  b"),
        ("not closed, line end", "a\n", "a"),
        ("blank lines before the fence", "a\n\n  \n```", "a"),
        ("blank lines at the end", "a\n\n\n", "a"),
        ("trailing spaces are code", "a  \n```", "a  "),
        ("half a fence is code", "a\n``", "a\n``"),
        ("backticks in a line", "a = '```'\nb\n```", "a = '```'\nb"),
        ("the other fence is code", "a\n~~~\nb\n```\nc", "a\n~~~\nb"),
        ("a fence indented deeper is code", "a\n    ```\n    x\n    ```\nb\n```", None),
        ("nothing", "", ""),
        ("only blank lines", "\n \n", ""),
        ("only the fence", "```", ""),
        ("fence, then talk", "```\nSorry.", ""),
        ("fence opened again", "```python\na\n```", "a"),
        ("fence opened again after a blank line", "\n```python\na\n```", "a"),
        ("fence opened again, not closed", "```python\na\nb", "a\nb"),
        ("opened again with tildes", "~~~python\na\n```\nb\n~~~\nc", "a\n```\nb"),
        ("opened again with a longer fence", "````python\na\n```\nb\n````\nc", "a\n```\nb"),
        ("sentence, then a fence", "Here is the code:\n```python\na\n```\nBye.", "a"),
        ("sentence, blank line, fence", "Sure! Here you go.\n\n```python\na\n```", "a"),
        ("sentence and a bare fence", "Here is the code:\n```\na\n```", "a"),
        ("two sentences", "Certainly!\nThe code:\n\n```py\na\n```", "a"),
        ("sentence as code", "Fix this.\n```\nb", "Fix this."),
        ("sentence without a fence", "Here it is:\na = 1\n```", "Here it is:\na = 1"),
        ("announcement and nothing else", "Here is the code:", ""),
        ("sentence and nothing else", "It says so.", "It says so."),
        ("sentence further down", "a\nThe rest:\n```python\nb\n```\nc\n```\nd", None),
        ("inner block", "a\n```py\nx\n```\nb\n```\nc", "a\n```py\nx\n```\nb"),
        ("end token", "a\nb<|im_end|>", "a\nb"),
        ("end token, then talk", "a</s>\nb", "a"),
        ("end token after the fence", "a\n```<|im_end|>\nb", "a"),
        ("end token alone on its line", "a\n<|endoftext|>", "a"),
        ("a struck text", "x = '<s>a</s>'\ny\n```", "x = '<s>a</s>'\ny"),
        ("half an end token", "a <|im_en", "a <|im_en"),
        ("CRLF", "a\r\nb\r\n```\r\nc", "a\nb"),
        ("blank lines at the start are kept", "\n\na\n```", "\n\na"),
    ],
)
def test_an_answer_gives_the_code_in_it(case, answer, expected):
    if expected is None:
        expected = answer.rpartition("\n```")[0]
    assert clean(answer) == expected


@pytest.mark.parametrize(
    ("answer", "finished"),
    [
        ("a\n```\n", True),
        ("a<|im_end|>", True),
        ("```\n", True),
        ("a\n", False),
        ("```python\na\n", False),
        ("a\n```p", False),
    ],
)
def test_an_answer_is_finished_by_a_closing_fence_or_an_end_token(answer, finished):
    cleaner = AnswerCleaner("```", SOURCE)
    cleaner.feed(answer)
    assert cleaner.finished is finished
    if finished:
        assert cleaner.feed("more\n") == cleaner.close() == ""
    cleaner.close()
    assert cleaner.finished is finished


def test_a_closing_fence_as_the_last_thing_written_finishes_the_answer():
    cleaner = AnswerCleaner("```", SOURCE)
    assert cleaner.feed("a\n```") == "a"
    assert not cleaner.finished
    assert cleaner.close() == ""
    assert cleaner.finished


@pytest.mark.parametrize("token", END_TOKENS)
def test_an_end_token_that_the_source_has_is_code(token):
    assert clean(f"a\nx = '{token}'\nb\n```") == "a\nx = '"
    assert clean(f"x = '{token}'\nb\n```", f"y = '{token}'") == f"x = '{token}'\nb"


@pytest.mark.parametrize(
    ("source", "answer", "expected"),
    [
        ("a\n", "b\n```", "b\n"),
        ("a\n", "b\n\n```", "b\n"),
        ("a\n\n", "b", "b\n\n"),
        ("a\n  ", "b\n", "b\n  "),
        ("a\r\n", "b\n```", "b\n"),
        ("a\n", "```", ""),
        ("a\n", "\n", ""),
        ("Fruits:", "Vegetables:", "Vegetables:"),
    ],
)
def test_line_ends_at_the_end_follow_the_source(source, answer, expected):
    assert clean(answer, source) == expected


@pytest.mark.parametrize(
    ("case", "fence", "answer", "expected"),
    [
        ("longer fence", "````", f"{MARKDOWN}\n````\nBye", MARKDOWN),
        ("longer fence, not closed", "````", f"{MARKDOWN}\n", MARKDOWN),
        ("begins with its own fence", "````", "```sh\nmake\n```\n````", "```sh\nmake\n```"),
        ("opened again, shorter", "````", f"```markdown\n{MARKDOWN}\n```\nBye", MARKDOWN),
        ("same fence", "```", f"{MARKDOWN}\n```\nBye", MARKDOWN),
    ],
)
def test_fences_of_the_source_are_code(case, fence, answer, expected):
    assert clean(answer, MARKDOWN, fence) == expected


def test_bare_fences_are_kept_as_often_as_the_source_has_them():
    source = "a\n```\nb\n```\nc"
    assert clean("A\n```\nb\n```\nc\n```\nd", source) == "A\n```\nb\n```\nc"


def test_a_fence_in_the_docstring_of_a_method_moved_to_the_margin_is_code():
    answer = 'def f(self):\n    """\n    ```\n    f()\n    ```\n    """'
    assert clean(f"{answer}\n```\nx", METHOD) == answer
    assert clean("    def f(self):\n        pass\n    ```\nx", METHOD) == (
        "    def f(self):\n        pass"
    )


def test_what_can_only_be_code_is_given_back_at_once():
    cleaner = AnswerCleaner("```", SOURCE)
    steps = [
        ("de", "de"),
        ("f g", "f g"),
        (":\n", ":"),
        ("    ", ""),
        ("pass", "\n    pass"),
        ("\n\n", ""),
        ("`", ""),
        ("x`", "\n\n`x`"),
        ("\n``", ""),
        ("`", ""),
        ("\n", ""),
    ]
    for delta, code in steps:
        assert cleaner.feed(delta) == code
    assert cleaner.finished


PARTS = (
    *("a", "Here is the code:", "Sure.", "def f(x):", "    ", " ", "\n", "\n", "\r", "\r\n"),
    *(
        "```",
        "``",
        "~~~",
        "````",
        "python",
        "```python\n",
        "\n```\n",
        "    ```",
        "<",
        "<s>",
        "</s>",
    ),
    *("<|im_end|>", "<|im_", "end|>", "é😀", "\f", "\u2028", "`", ":"),
)
answers = st.lists(st.sampled_from(PARTS), max_size=16).map("".join)
sources = st.sampled_from(
    (SOURCE, METHOD, MARKDOWN, "", "a\n\n", "```\na\n```", "x </s> <|im_end|>:")
)


@settings(max_examples=250)
@given(answers, sources, st.sampled_from(("```", "````", "~~~", "")), st.data())
def test_the_code_does_not_depend_on_how_the_answer_is_cut(answer, source, fence, data):
    whole = AnswerCleaner(fence, source)
    pieces = AnswerCleaner(fence, source)
    assert feed_all(pieces, data.draw(cut(answer))) == feed_all(whole, [answer])
    assert pieces.finished is whole.finished
    assert clean(answer, source, fence) == feed_all(AnswerCleaner(fence, source), answer)


@given(st.text(), st.text(), st.text(), st.data())
def test_any_answer_source_and_fence_are_taken(answer, source, fence, data):
    code = feed_all(AnswerCleaner(fence, source), data.draw(cut(answer)))
    assert len(code) <= len(answer) + len(source)


code_lines = st.sampled_from(("", "x = 1", "    y()", "\tz", "# `a`", "if a < b:", "  ", "}"))


@given(st.lists(code_lines, min_size=1).map("\n".join), st.booleans())
def test_an_answer_as_it_should_be_is_its_code_to_the_last_byte(code, closed):
    code += "\nend"
    assert clean(code + "\n```" * closed) == code
