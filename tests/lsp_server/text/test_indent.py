from textwrap import indent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.text.indent import IndentRestorer, indent_kind, space_unit

from .texts import cut, feed_all

METHOD = "    def f(self):\n        return 1"
TABS = "\tdef f(self):\n\t\treturn 1"
METHOD_2 = "    def f(self):\n        return 2"
TABS_2 = "\tdef f(self):\n\t\treturn 2"
GO = "func f() {\n\tif x {\n\t\treturn\n\t}\n}"
STRING = '    x = """\nat the margin\n    """\n    y()'


def restore(answer: str, source: str) -> str:
    return feed_all(IndentRestorer(source), [answer])


@pytest.mark.parametrize(
    ("case", "source", "answer", "expected"),
    [
        ("the same base", METHOD, "    def g():\n        a\n\n  b", None),
        ("moved to the margin", METHOD, "def f(self):\n    return 2", METHOD_2),
        ("moved half way", METHOD, "  def g():\n      a\n  b", "    def g():\n        a\n    b"),
        ("moved too far", "a\n  b", "    a\n      c", "a\n  c"),
        ("less indented than what is taken off", "a", "    a\n  b\nc", "a\n  b\nc"),
        ("less indented than the base", METHOD, "  a\nb", "    a\n  b"),
        ("blank lines get nothing", METHOD, "a\n\n  \nb", "    a\n\n  \n    b"),
        ("blank lines first", METHOD, "\n \na\nb", "\n \n    a\n    b"),
        ("tabs stay tabs", TABS, "def f(self):\n\treturn 2", TABS_2),
        (
            "only the first line moved",
            METHOD,
            "def f(s):\n        return 1\n  b",
            "    def f(s):\n        return 1\n  b",
        ),
        ("one line", METHOD, "a", "    a"),
        ("one line and its end", METHOD, "a\n", "    a\n"),
        ("spaces for tabs", GO, "func f() {\n    if x {\n        return\n    }\n}", GO),
        ("two spaces for tabs", GO, "func f() {\n  if x {\n    return\n  }\n}", GO),
        ("spaces for tabs, moved", TABS, "def f(self):\n    return 2", TABS_2),
        ("spaces for tabs, not moved", TABS, "    def f(self):\n        return 2", TABS_2),
        ("tabs for spaces", METHOD, "\tdef f(self):\n\t\treturn 2", METHOD_2),
        ("tabs for two", "a:\n  b", "a:\n\tb\n\t\tc\n\t d", "a:\n  b\n    c\n   d"),
        ("deeper by two units", GO, "f(a,\n        b)\n    c", "f(a,\n\t\tb)\n\tc"),
        ("an aligned line", GO, "f(\n    a\n      b", "f(\n\ta\n\t  b"),
        ("comment stars", GO, "/*\n * a\n */\nf {\n\tb\n  c", None),
        ("tabs with spaces behind", TABS, "\tf(a,\n\t  b)\n\t    c", None),
        ("both kinds in the source", "a\n\tb\n  c", "a\n\tb\n  c\n    d", None),
        ("nothing known", "a", "a\n  b\n\tc", None),
        ("nothing", METHOD, "", ""),
        ("blank source", "  \n", "  a", "a"),
        ("string text at the margin", STRING, 'x = """\nat the margin\n"""\ny()', STRING),
        ("other line ends", METHOD.replace("\n", "\r\n"), "def f(self):\n    return 1", METHOD),
    ],
)
def test_the_answer_is_indented_like_the_source(case, source, answer, expected):
    if expected is None:
        expected = answer
    assert restore(answer, source) == expected


def test_a_second_line_that_is_of_the_source_when_shifted_is_shifted():
    source = "    a\n    b\n        a2\n        b"
    assert restore("a\n    b\n", source) == "    a\n        b\n"


def test_an_answer_with_the_right_base_is_given_back_at_once():
    restorer = IndentRestorer(METHOD)
    assert restorer.feed("    def f(s") == ""
    assert restorer.feed("elf):\n    ") == "    def f(self):\n"
    assert restorer.feed("    return 2\n") == "        return 2\n"
    assert restorer.feed("        wi") == "        wi"
    assert restorer.close() == ""


def test_an_answer_with_another_base_is_given_back_line_by_line():
    restorer = IndentRestorer(METHOD)
    assert restorer.feed("def f(self):\n") == ""
    assert restorer.feed("    return") == ""
    assert restorer.feed(" 2\n    x") == METHOD_2 + "\n"
    assert restorer.close() == "        x"


@pytest.mark.parametrize(
    ("lines", "kind", "unit"),
    [
        ([], "", 4),
        (["a", "b"], "", 4),
        (["a", " * b"], "", 4),
        (["a", "  b"], " ", 2),
        (["a", "    b", "        c", "          d"], " ", 4),
        (["a", "        b"], " ", 8),
        (["a", "\tb", " * c"], "\t", 4),
        (["\ta", "  b"], "", 4),
    ],
)
def test_kind_and_unit_of_indentation(lines, kind, unit):
    assert indent_kind(lines) == kind
    assert space_unit(lines) == unit


code = st.lists(
    st.sampled_from(("a", "  b", "    c", "\td", "\t\te", "\t  f", "", "  ", " * g", "x\fy\r")),
    max_size=8,
).map("\n".join)


@settings(max_examples=200)
@given(code, code, st.data())
def test_the_text_does_not_depend_on_how_the_answer_is_cut(source, answer, data):
    whole = restore(answer, source)
    assert feed_all(IndentRestorer(source), data.draw(cut(answer))) == whole
    assert feed_all(IndentRestorer(source), answer) == whole


@given(code, code)
def test_only_white_space_at_line_starts_is_changed(source, answer):
    lines = restore(answer, source).split("\n")
    assert [line.lstrip(" \t") for line in lines] == [
        line.lstrip(" \t") for line in answer.split("\n")
    ]


@given(code)
def test_the_source_as_the_answer_stays_as_it_is(source):
    assert restore(source, source) == source


blocks = st.lists(st.sampled_from(("a", "    b", "        c", "d:", "")), max_size=6)


@given(blocks, st.sampled_from(("    ", "        ", "  ")))
def test_a_block_moved_to_the_margin_is_moved_back(lines, prefix):
    block = "\n".join(["start:", *lines])
    source = indent("start:\n    other", prefix)
    assert restore(block, source) == indent(block, prefix)


@given(st.text(), st.text(), st.data())
def test_any_source_and_answer_are_taken(source, answer, data):
    text = feed_all(IndentRestorer(source), data.draw(cut(answer)))
    assert text.count("\n") == answer.count("\n")
