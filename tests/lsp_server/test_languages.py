from __future__ import annotations

import pytest

from lsp_server import languages
from lsp_server.core import RewriteError
from lsp_server.languages import LANGUAGES, grammar, language_info, language_of


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("python", "python"),
        ("typescriptreact", "typescriptreact"),
        ("typescript.tsx", "typescriptreact"),
        ("tsx", "typescriptreact"),
        ("jsx", "javascriptreact"),
        ("c++", "cpp"),
        ("C#", "csharp"),
        ("cs", "csharp"),
        ("golang", "go"),
        ("src/main.py", "python"),
        ("/a/b.c/d.pyi", "python"),
        ("C:\\code\\a.TS", "typescript"),
        ("file:///a/b.mjs", "javascript"),
        ("types.d.ts", "typescript"),
        ("a.tsx", "typescriptreact"),
        ("a.rs", "rust"),
        ("a.c", "c"),
        ("a.h", "c"),
        ("a.C", "cpp"),
        ("a.hpp", "cpp"),
        ("A.java", "java"),
        ("a.cs", "csharp"),
        ("Rakefile", "ruby"),
        ("lib/a.rb", "ruby"),
        ("a.php", "php"),
        ("build.gradle.kts", "kotlin"),
        ("init.lua", "lua"),
        ("a.go", "go"),
        ("README.md", ""),
        ("Makefile", ""),
        ("plaintext", ""),
        (".py", "python"),
        ("a.", ""),
        ("", ""),
    ],
)
def test_a_language_is_known_by_its_id_or_by_a_path(given: str, expected: str) -> None:
    assert language_of(given) == expected


def test_the_fourteen_languages_are_there_with_their_fences() -> None:
    assert {row.id: row.fence for row in LANGUAGES} == {
        "python": "python",
        "javascript": "javascript",
        "javascriptreact": "jsx",
        "typescript": "typescript",
        "typescriptreact": "tsx",
        "go": "go",
        "rust": "rust",
        "c": "c",
        "cpp": "cpp",
        "java": "java",
        "csharp": "csharp",
        "ruby": "ruby",
        "php": "php",
        "kotlin": "kotlin",
        "lua": "lua",
    }


@pytest.mark.parametrize("row", LANGUAGES, ids=lambda row: row.id)
def test_every_grammar_loads_once(row: languages.Language) -> None:
    assert grammar(row.id) is grammar(row.id)
    assert language_info(row.id) is row


def test_a_grammar_that_is_not_installed_says_which_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    grammar.cache_clear()
    monkeypatch.setattr(languages.importlib, "import_module", missing)
    with pytest.raises(RewriteError, match="install the package tree-sitter-c-sharp") as error:
        grammar("csharp")
    assert error.value.code == "grammar_missing"


def test_an_unknown_language_has_no_grammar_and_no_row() -> None:
    assert language_info("cobol") is None
    with pytest.raises(RewriteError) as error:
        grammar("cobol")
    assert error.value.code == "unknown_language"
