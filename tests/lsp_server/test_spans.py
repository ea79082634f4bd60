from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsp_server.core import RewriteError, Span
from lsp_server.languages import LANGUAGES, grammar
from lsp_server.span_rules import RULES
from lsp_server.spans import span_at, spans_named
from lsp_server.syntax import parse

IDS = [language.id for language in LANGUAGES]
FIXTURES = Path(__file__).parent / "fixtures" / "spans"


def read_samples(language: str) -> list[str]:
    """Return the texts of a language's cases, without their marks."""
    text = (FIXTURES / f"{language}.txt").read_text(encoding="utf-8")
    text = text.translate({ord(mark): None for mark in "‸⟦⟧"})
    return re.split(r"^=== .*\n", text, flags=re.MULTILINE)[1:]


SAMPLES = {language: read_samples(language) for language in IDS}


def texts(document: str, language: str, name: str) -> list[str]:
    return [document[span.start : span.end] for span in spans_named(document, language, name)]


def at(marked: str, language: str) -> str | None:
    offset = marked.index("‸")
    document = marked.replace("‸", "")
    span = span_at(document, language, offset)
    return None if span is None else document[span.start : span.end]


def span_or_timeout(document: str, language: str, offset: int) -> Span | None:
    try:
        return span_at(document, language, offset)
    except RewriteError as error:
        if error.code != "parse_timeout":
            raise
        return None


class TestTables:
    def test_every_language_has_rules(self) -> None:
        assert set(RULES) == set(IDS)

    @pytest.mark.parametrize("language", IDS)
    def test_every_kind_and_field_exists_in_its_grammar(self, language: str) -> None:
        rules = RULES[language]
        steps = {step for group in rules.steps.values() for step in group}
        steps |= set(rules.scopes.values())
        kinds = (
            rules.functions
            | rules.classes
            | rules.values
            | rules.class_values
            | rules.steps.keys()
            | rules.links
            | rules.bodied
            | rules.attributes
            | rules.scopes.keys()
            | {step for step in steps if not step.startswith(".")}
        )
        known = grammar(language)
        unknown = [kind for kind in kinds if known.id_for_node_kind(kind, True) is None]
        unknown += [
            step
            for step in steps
            if step.startswith(".") and known.field_id_for_name(step[1:]) is None
        ]
        assert unknown == []


class TestSpansNamed:
    @pytest.mark.parametrize(
        ("language", "document", "name", "expected"),
        [
            ("python", "def f():\n    pass\n", "f", ["def f():\n    pass"]),
            (
                "python",
                "class A:\n    class B:\n        # x\n        def f(self): ...\ndef f(): ...\n",
                "A.B.f",
                ["        # x\n        def f(self): ..."],
            ),
            (
                "python",
                "class A:\n    def f(self): ...\n\ndef f(): ...\n",
                "f",
                ["    def f(self): ...", "def f(): ..."],
            ),
            ("python", "@d\nclass A:\n    pass\n", "A", ["@d\nclass A:\n    pass"]),
            ("python", "f = lambda: 0\n", "f", ["f = lambda: 0"]),
            (
                "rust",
                "struct S;\nimpl S {\n    #[x]\n    fn f() {}\n}\nfn f() {}\n",
                "S::f",
                ["    #[x]\n    fn f() {}"],
            ),
            ("rust", "struct S;\nimpl S {}\nimpl T for S {}\n", "S", ["struct S;"]),
            ("rust", "impl T<u8> for a::S<u8> {}\n", "S", ["impl T<u8> for a::S<u8> {}"]),
            ("rust", "impl T for S {\n  // x\n}\n", "impl S", ["impl T for S {\n  // x\n}"]),
            ("rust", "mod m { fn f() {} }\n", "m::f", ["fn f() {}"]),
            ("cpp", "int A::f() { return 1; }\nint f() { return 2; }\n", "A::f",
             ["int A::f() { return 1; }"]),
            ("cpp", "namespace n {\nint A<T>::f() {}\n}\n", "n::A::f", ["int A<T>::f() {}"]),
            ("cpp", "class A {\n  int f() {}\n};\n", "A.f", ["  int f() {}"]),
            ("cpp", "A::~A() {}\nA::A() {}\n", "A::~A", ["A::~A() {}"]),
            ("cpp", "A& A::operator=(const A& o) {}\n", "A::operator=",
             ["A& A::operator=(const A& o) {}"]),
            ("go", "func (t *Tree[K]) Get() {}\nfunc Get() {}\n", "Tree.Get",
             ["func (t *Tree[K]) Get() {}"]),
            ("go", "func (t Tree) Get() {}\nfunc Get() {}\n", "Get",
             ["func (t Tree) Get() {}", "func Get() {}"]),
            ("go", "type T struct {\n\tx int\n}\n", "T", ["type T struct {\n\tx int\n}"]),
            ("lua", "function M.f() end\nfunction M:g() end\n", "M.f", ["function M.f() end"]),
            ("lua", "function M.f() end\nfunction M:g() end\n", "M:g", ["function M:g() end"]),
            ("lua", "M.t = {\n  f = function() end,\n}\n", "M.t.f", ["  f = function() end,"]),
            ("javascript", "export const f = () => 1;\n", "f", ["export const f = () => 1;"]),
            ("javascript", "const o = {\n  m() {},\n};\n", "o.m", ["  m() {},"]),
            ("javascript", "A.prototype.b = function () {};\n", "A.b",
             ["A.prototype.b = function () {};"]),
            ("javascript", "class A {\n  #p = () => 1;\n}\n", "A.#p", ["  #p = () => 1;"]),
            ("typescript", "function f(a: string): void;\nfunction f(a: any) {}\n", "f",
             ["function f(a: any) {}"]),
            ("typescript", "namespace N {\n  export class A {\n    f() {}\n  }\n}\n", "N.A.f",
             ["    f() {}"]),
            ("java", "class A {\n  class B {\n    void f() {}\n  }\n}\n", "A.B.f",
             ["    void f() {}"]),
            ("csharp", "namespace N.M {\n  class A { }\n}\n", "M.A", ["  class A { }"]),
            ("ruby", "class A::B\n  def self.f; end\nend\n", "A::B.f", ["  def self.f; end"]),
            ("ruby", "class A\n  def ok?\n  end\nend\n", "A#ok?", ["  def ok?\n  end"]),
            ("php", "<?php\nclass A {\n  function f() {}\n}\n", "A::f", ["  function f() {}"]),
            ("php", "<?php\n$f = fn() => 1;\n", "$f", ["$f = fn() => 1;"]),
            ("kotlin", "class A {\n    fun f() {}\n}\n", "A.f", ["    fun f() {}"]),
            ("kotlin", "fun String.f() {}\n", "f", ["fun String.f() {}"]),
            ("c", "static int *f(void) { return 0; }\nint f(void);\n", "f",
             ["static int *f(void) { return 0; }"]),
            ("c", "typedef struct { int x; } P;\n", "P", ["typedef struct { int x; } P;"]),
        ],
    )  # fmt: skip
    def test_a_name_finds_its_definitions(
        self, language: str, document: str, name: str, expected: list[str]
    ) -> None:
        assert texts(document, language, name) == expected

    def test_no_such_name_and_no_such_language_give_nothing(self) -> None:
        assert spans_named("def f(): ...\n", "python", "g") == []
        assert spans_named("def f(): ...\n", "python", "A.f") == []
        assert spans_named("def f(): ...\n", "python", "") == []
        assert spans_named("def f(): ...\n", "", "f") == []


class TestSpanAt:
    def test_an_unknown_language_gives_nothing(self) -> None:
        assert span_at("def f(): ...\n", "", 3) is None
        assert span_at("def f(): ...\n", "cobol", 3) is None

    def test_offsets_outside_the_text_are_clamped(self) -> None:
        assert span_at("def f(): ...", "python", -5) == Span(0, 12, "function", "f")
        assert span_at("def f(): ...", "python", 99) == Span(0, 12, "function", "f")

    def test_an_empty_text_gives_nothing(self) -> None:
        assert all(span_at("", language, 0) is None for language in IDS)

    def test_a_byte_order_mark_stays_outside(self) -> None:
        assert at("\ufeffdef f():\n    ‸pass\n", "python") == "def f():\n    pass"

    def test_lone_carriage_returns_are_line_ends(self) -> None:
        assert at("# x\rdef f():\r    # y\r    ‸pass\rz = 1\r", "python") == (
            "# x\rdef f():\r    # y\r    pass"
        )

    def test_lone_surrogates_keep_their_place(self) -> None:
        assert at('x = "\ud800\udc00"\ndef f():\n    return "\udfff‸"\n', "python") == (
            'def f():\n    return "\udfff"'
        )

    def test_line_separators_of_unicode_are_no_line_ends(self) -> None:
        assert at('x = 1\ndef f():\n    return "\u2028‸\x0c"\n', "python") == (
            'def f():\n    return "\u2028\x0c"'
        )

    @pytest.mark.parametrize(
        ("language", "marked", "expected"),
        [
            ("python", "def a(\n\ndef b():\n    return ‸2\n", "def b():\n    return 2"),
            ("python", 'def a():\n    s = """x\n\ndef b():\n    ‸pass\n', "def b():\n    pass"),
            (
                "python",
                "class A:\n  def a(self):\n    x = [‸1,\n\n  def b(self):\n    pass\n",
                "  def a(self):\n    x = [1,",
            ),
            (
                "python",
                "class A:\n  def a(self):\n    x = [1,\n\n  def b(self):\n    pass‸\n",
                "  def b(self):\n    pass",
            ),
            ("go", "func a() {\n\tif x {\n\t\ty(‸)\n}\n\nfunc b() {\n}\n",
             "func a() {\n\tif x {\n\t\ty()\n}"),
            ("c", "int a() {\n  if (x) {\n    ‸y();\n}\n\nint b() {\n}\n",
             "int a() {\n  if (x) {\n    y();\n}"),
            ("java", "class A {\n  void a() {\n    if (x) {\n    ‸}\n\n  void b() {\n  }\n}\n",
             "  void a() {\n    if (x) {\n    }"),
            ("kotlin", "class A {\n  fun a() {\n    if (x) {\n    ‸}\n\n  fun b() {\n  }\n}\n",
             "  fun a() {\n    if (x) {\n    }"),
            ("c", "int a() {\n  y(‸;\n\n/* b\n * c\n */\nint b() {\n}\n", "int a() {\n  y(;"),
            ("cpp", "namespace N {\nvoid a() {\n  if (x) {\n    ‸}\n\nint b() {\n}\n}\n",
             "void a() {\n  if (x) {\n    }"),
        ],
    )  # fmt: skip
    def test_a_definition_that_is_not_closed_does_not_swallow_the_next(
        self, language: str, marked: str, expected: str
    ) -> None:
        assert at(marked, language) == expected

    def test_text_at_the_first_column_in_a_string_ends_nothing(self) -> None:
        document = "function a() {\n  f(‸`\nb\n`);\n// c\n  g();\n}\n\nlet x = (;\n"
        assert at(document, "javascript") == "function a() {\n  f(`\nb\n`);\n// c\n  g();\n}"

    @pytest.mark.parametrize(
        ("language", "document"),
        [
            ("python", "(" * 50_000),
            ("javascript", "a=>" * 20_000 + "1"),
            ("javascript", "a=" * 20_000 + "1"),
            ("javascript", "class A{a(){" * 10_000),
            ("c", "*" * 50_000),
            ("cpp", "a<" * 2_000),
            ("python", "def f():\n" + "".join(" " * n + "if x:\n" for n in range(1, 400))),
            ("rust", "/// x\n" * 20_000 + "fn f() {}"),
            ("rust", "#[x]\n" * 5_000 + "fn f() {}"),
        ],
        ids=lambda value: value[:12],
    )
    def test_deep_and_long_texts_end_in_an_answer(self, language: str, document: str) -> None:
        began = time.thread_time()
        for offset in (0, len(document) // 2, len(document)):
            span_or_timeout(document, language, offset)
        assert time.thread_time() - began < 8

    def test_ten_thousand_lines_take_under_150_milliseconds(self) -> None:
        function = "def f{0}(a: int) -> int:\n    # adds\n    b = a + {0}\n    return b\n\n"
        document = "".join(function.format(n) for n in range(2000))
        assert document.count("\n") == 10_000
        times = []
        for turn in range(3):
            text = document + "#" * turn  # a text not seen before: nothing is cached
            offset = text.index("return", len(text) // 2)
            began = time.thread_time()
            span = span_at(text, "python", offset)
            times.append(time.thread_time() - began)
            assert span is not None
            assert span.start < offset < span.end
        assert min(times) < 0.15


def check(document: str, language: str, offset: int) -> None:
    span = span_or_timeout(document, language, offset)
    if span is None:
        return
    assert 0 <= span.start <= offset <= span.end <= len(document)
    assert span.kind in ("function", "class")
    assert document[span.start : span.end].strip()
    if parse(document, language).last_error_end >= 0:
        return  # where a definition ends is a guess then
    again = span_at(document, language, span.start)
    assert again is not None
    assert again.start <= span.start
    assert again.end >= span.end


@st.composite
def mangled(draw: st.DrawFn) -> tuple[str, str, int]:
    language = draw(st.sampled_from(IDS))
    text = "".join(SAMPLES[language])
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 300)))
        place = draw(st.integers(0, len(text)))
        match draw(st.sampled_from(["cut", "copy", "lines", "type"])):
            case "cut":
                text = text[:start] + text[end:]
            case "copy":
                text = text[:place] + text[start:end] + text[place:]
            case "lines":
                text = text.replace("\n", draw(st.sampled_from(["\r\n", "\r", "\n"])))
            case _:
                text = text[:place] + draw(st.text(max_size=5)) + text[place:]
    length = min(len(text), 1500)
    start = draw(st.integers(0, len(text) - length))
    text = text[start : start + length]
    return language, text, draw(st.integers(0, len(text)))


class TestAnyText:
    @pytest.mark.parametrize("language", IDS)
    def test_every_place_in_the_samples_gives_a_sound_span(self, language: str) -> None:
        for document in SAMPLES[language]:
            for offset in range(0, len(document) + 1, 2):
                check(document, language, offset)

    @given(st.sampled_from(IDS), st.text(max_size=200), st.integers(0, 200))
    @settings(max_examples=150, deadline=None)
    def test_random_text_gives_sound_spans(self, language: str, text: str, offset: int) -> None:
        check(text, language, min(offset, len(text)))

    @given(mangled())
    @settings(max_examples=300, deadline=None)
    def test_mangled_code_gives_sound_spans(self, case: tuple[str, str, int]) -> None:
        language, text, offset = case
        check(text, language, offset)

    @given(mangled(), st.sampled_from(["f", "A.b", "operator<", "main", "area", "Users"]))
    @settings(max_examples=200, deadline=None)
    def test_named_spans_of_mangled_code_are_in_order(
        self, case: tuple[str, str, int], name: str
    ) -> None:
        language, text, _ = case
        spans = spans_named(text, language, name)
        assert all(0 <= span.start < span.end <= len(text) for span in spans)
        assert [span.start for span in spans] == sorted(span.start for span in spans)


def statements(
    node: ast.AST, owner: ast.stmt | None = None
) -> Iterator[tuple[ast.stmt, ast.stmt | None]]:
    """Yield the simple statements and the function or class that each is in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from statements(child, child)
            continue
        named = isinstance(child, ast.Assign) and isinstance(child.value, ast.Lambda)
        if isinstance(child, ast.stmt) and not named:
            yield child, owner
        yield from statements(child, owner)


class TestBesidePythonsOwnParser:
    @pytest.mark.parametrize(
        "module", [ast, dataclasses, functools, textwrap], ids=lambda module: module.__name__
    )
    def test_every_statement_of_a_module_is_in_the_right_definition(
        self, module: ModuleType
    ) -> None:
        text = inspect.getsource(module)
        lines = text.splitlines(keepends=True)
        starts = [0, *itertools.accumulate(map(len, lines))]
        checked = 0
        for statement, owner in statements(ast.parse(text)):
            span = span_at(text, "python", starts[statement.lineno - 1] + statement.col_offset)
            if owner is None:
                assert span is None, f"line {statement.lineno}"
                continue
            assert isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            assert span is not None
            assert span.name == owner.name
            first = min([owner.lineno, *(item.lineno for item in owner.decorator_list)])
            above = text[span.start : starts[first - 1]]
            below = text[starts[owner.end_lineno or 0] : span.end]
            assert span.end >= starts[owner.end_lineno or 0] - 1
            assert all(line.strip()[:1] in ("", "#") for line in (above + below).splitlines())
            checked += 1
        assert checked > 100
