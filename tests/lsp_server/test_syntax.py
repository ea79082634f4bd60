from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server import syntax, syntax_check
from lsp_server.core import RewriteError, Span
from lsp_server.spans import new_syntax_errors, span_at
from lsp_server.syntax import parse


def errors(before: str, old: str, new: str, language: str = "python") -> list[str]:
    """Replace `old` in `before` by `new` and return what that broke."""
    start = before.index(old)
    after = before[:start] + new + before[start + len(old) :]
    return new_syntax_errors(
        before, after, language, Span(start, start + len(old)), start + len(new)
    )


class TestOffsets:
    @given(st.text(max_size=40), st.integers(0, 40))
    def test_bytes_and_characters_go_both_ways(self, text: str, offset: int) -> None:
        tree = parse(text, "python")
        offset = min(offset, len(text))
        assert tree.char_offset(tree.byte_offset(offset)) == offset
        assert len(tree.data) == len(text.encode("utf-8", "surrogatepass"))

    def test_a_byte_inside_a_character_belongs_to_it(self) -> None:
        tree = parse("é😀x", "python")
        assert [tree.char_offset(byte) for byte in range(8)] == [0, 0, 1, 1, 1, 1, 2, 3]

    @given(st.text("a\ud800\udc00é", max_size=20))
    def test_lone_surrogates_count_as_one_character(self, text: str) -> None:
        tree = parse(text, "lua")
        assert tree.char_offset(len(tree.data)) == len(text)


class TestLimits:
    def test_a_text_that_takes_too_long_says_to_select(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(syntax, "PARSE_SECONDS", -1.0)
        document = "def f():\n    pass\n" * 500 + "# not parsed before\n"
        with pytest.raises(RewriteError, match="select the lines") as error:
            span_at(document, "python", 3)
        assert error.value.code == "parse_timeout"
        assert errors(document, "not parsed", "pass", "python") == []

    def test_in_a_file_that_takes_too_long_the_span_is_judged_for_itself(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        method = "    def last(self):\n        return (1)\n"
        document = "class A:\n" + "    def f(self):\n        pass\n" * 500 + method

        def parse_small(text: str, language: str) -> syntax.SyntaxTree:
            if len(text) > 2_000:
                raise RewriteError("parse_timeout", "too long")
            return parse(text, language)

        monkeypatch.setattr(syntax_check, "parse", parse_small)
        assert errors(document, method, method.replace("(1)", "(1")) == ["line 1003: unclosed `(`"]
        assert errors(document, method, method.replace("(1)", "(1, 2)")) == []

    def test_the_same_text_is_parsed_once(self) -> None:
        assert parse("x = 1\n", "python") is parse("x = 1\n", "python")

    def test_the_path_to_a_byte_goes_from_the_root_to_the_leaf(self) -> None:
        kinds = [node.type for node in parse("def f():\n  x\n", "python").path_at(11)]
        assert kinds == [
            "module",
            "function_definition",
            "block",
            "expression_statement",
            "identifier",
        ]


class TestNewSyntaxErrors:
    FUNCTIONS = "def f(a):\n    return a\n\ndef g(b):\n    return b\n"

    def test_a_sound_edit_breaks_nothing(self) -> None:
        assert errors(self.FUNCTIONS, "return a", "return (a + 1)") == []

    def test_an_unexpected_token_is_named_with_its_line(self) -> None:
        assert errors(self.FUNCTIONS, "return a", "x = 1\n    return a)") == [
            "line 3: unexpected `)`"
        ]

    def test_a_missing_token_is_named_with_its_line(self) -> None:
        before = "function f() {\n  g();\n}\n"
        assert errors(before, "g();\n}", "g();\n", "javascript") == ["line 2: missing `}`"]

    def test_a_bracket_that_swallows_what_follows_is_an_error(self) -> None:
        found = errors(self.FUNCTIONS, "return a", "return (a")
        assert found
        assert found[0] == "line 2: unclosed `(`"

    def test_prose_instead_of_code_is_an_error(self) -> None:
        assert errors(self.FUNCTIONS, "return a", "Here is the changed code:") != []

    def test_a_fence_left_in_the_code_is_an_error(self) -> None:
        found = errors(self.FUNCTIONS, "    return a", "    return a\n```")
        assert found
        assert found[0].startswith("line 3: unexpected `")

    def test_errors_that_were_there_outside_do_not_count(self) -> None:
        before = "x = (]\n" + self.FUNCTIONS + "y = )\n"
        assert errors(before, "return a", "return a + 1") == []

    def test_a_repaired_error_is_fine(self) -> None:
        assert errors("def f(a):\n    return a)\n", "return a)", "return a") == []

    def test_an_error_that_was_there_inside_may_stay(self) -> None:
        assert errors("def f(a):\n    return a)\n", "return a)", "return a + 1)") == []

    def test_a_second_error_inside_is_reported_alone(self) -> None:
        before = "def f(a):\n    x = a)\n    y = 1\n"
        found = errors(before, before, "def f(a):\n    x = a)\n    y = 1]\n")
        assert found == ["line 3: unexpected `]`"]

    def test_lines_are_those_of_the_new_text(self) -> None:
        before = "# 😀\r\n" + self.FUNCTIONS.replace("\n", "\r\n")
        assert errors(before, "return a", "x = 1\r\n    y = 2\r\n    return a)") == [
            "line 5: unexpected `)`"
        ]

    def test_an_unknown_language_is_not_checked(self) -> None:
        assert errors("a", "a", "((((", "") == []

    def test_there_are_few_messages(self) -> None:
        assert 1 <= len(errors("x = 1\n", "x = 1", "\n".join(f"x{n} = ]" for n in range(50)))) <= 5

    @given(st.text("ab=()[]{}:;\n\t'\"\\é\ud800", max_size=40))
    def test_no_text_at_all_breaks_the_check(self, new: str) -> None:
        for language in ("python", "javascript", "rust"):
            for message in errors("x = 1\ny = 2\n", "x = 1", new, language):
                assert message.startswith("line ")
        assert errors("x = 1\n", "x = 1", "x = 1") == []
