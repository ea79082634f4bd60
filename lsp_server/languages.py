"""The languages that redraft knows, as data, and their grammars, loaded when first used."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from functools import cache

from tree_sitter import Language as Grammar

from lsp_server.core import RewriteError


@dataclass(frozen=True, slots=True)
class Language:
    """One language.

    Attributes:
        id: the LSP language id.
        title: its name for people.
        fence: the word after the opening fence of a code block in a prompt.
        comment: what begins a comment that runs to the end of the line.
        extensions: file extensions without the dot, lower case unless case matters.
        aliases: other ids that editors use for it, and whole file names.
        module, loader: where the grammar is: `import module; module.loader()`.
    """

    id: str
    title: str
    fence: str
    comment: str
    extensions: tuple[str, ...]
    aliases: tuple[str, ...]
    module: str
    loader: str = "language"


LANGUAGES: tuple[Language, ...] = (
    Language(
        "python",
        "Python",
        "python",
        "#",
        ("py", "pyi", "pyw"),
        ("python3", "py"),
        "tree_sitter_python",
    ),
    Language(
        "javascript",
        "JavaScript",
        "javascript",
        "//",
        ("js", "mjs", "cjs"),
        ("js",),
        "tree_sitter_javascript",
    ),
    Language(
        "javascriptreact",
        "JavaScript JSX",
        "jsx",
        "//",
        ("jsx",),
        ("jsx", "javascript.jsx"),
        "tree_sitter_javascript",
    ),
    Language(
        "typescript",
        "TypeScript",
        "typescript",
        "//",
        ("ts", "mts", "cts"),
        ("ts",),
        "tree_sitter_typescript",
        "language_typescript",
    ),
    Language(
        "typescriptreact",
        "TypeScript JSX",
        "tsx",
        "//",
        ("tsx",),
        ("tsx", "typescript.tsx"),
        "tree_sitter_typescript",
        "language_tsx",
    ),
    Language("go", "Go", "go", "//", ("go",), ("golang",), "tree_sitter_go"),
    Language("rust", "Rust", "rust", "//", ("rs",), ("rs",), "tree_sitter_rust"),
    Language("c", "C", "c", "//", ("c", "h"), (), "tree_sitter_c"),
    Language(
        "cpp",
        "C++",
        "cpp",
        "//",
        ("cpp", "cc", "cxx", "c++", "hpp", "hh", "hxx", "h++", "ipp", "inl", "C", "H"),
        ("c++",),
        "tree_sitter_cpp",
    ),
    Language("java", "Java", "java", "//", ("java",), (), "tree_sitter_java"),
    Language(
        "csharp",
        "C#",
        "csharp",
        "//",
        ("cs", "csx"),
        ("cs", "c#", "c-sharp"),
        "tree_sitter_c_sharp",
    ),
    Language(
        "ruby",
        "Ruby",
        "ruby",
        "#",
        ("rb", "rake", "gemspec", "ru"),
        ("rb", "Rakefile", "Gemfile"),
        "tree_sitter_ruby",
    ),
    Language(
        "php",
        "PHP",
        "php",
        "//",
        ("php", "phtml"),
        (),
        "tree_sitter_php",
        "language_php",
    ),
    Language("kotlin", "Kotlin", "kotlin", "//", ("kt", "kts"), ("kt",), "tree_sitter_kotlin"),
    Language("lua", "Lua", "lua", "--", ("lua",), (), "tree_sitter_lua"),
)

_BY_ID = {language.id: language for language in LANGUAGES}
_BY_ALIAS = {alias: row.id for row in LANGUAGES for alias in (*row.aliases, row.title.lower())}
_BY_EXTENSION = {extension: row.id for row in LANGUAGES for extension in row.extensions}


def language_of(language_id_or_path: str) -> str:
    """Return the LSP id for an editor's language id, a file path or a URI; "" when unknown."""
    if language_id_or_path in _BY_ID:
        return language_id_or_path
    name = re.split(r"[/\\]", language_id_or_path)[-1]
    for key in (language_id_or_path.lower(), name):
        if key in _BY_ID:
            return key
        if key in _BY_ALIAS:
            return _BY_ALIAS[key]
    _, dot, extension = name.rpartition(".")
    if not dot:
        return ""
    return _BY_EXTENSION.get(extension) or _BY_EXTENSION.get(extension.lower(), "")


def language_info(language: str) -> Language | None:
    """Return the row of an LSP language id, or None when it is not one of ours."""
    return _BY_ID.get(language)


def suffixes_of(language: str) -> list[str]:
    """Return the endings of the language's files, without the dot; none when it is not ours."""
    row = _BY_ID.get(language)
    return list(row.extensions) if row is not None else []


@cache
def grammar(language: str) -> Grammar:
    """Load the grammar of a known LSP language id, once.

    Raises:
        RewriteError: `grammar_missing` when its wheel is not installed or does not load.
    """
    row = _BY_ID.get(language)
    if row is None:
        raise RewriteError(
            "unknown_language", "redraft has no grammar for this language: select the lines."
        )
    try:
        return Grammar(getattr(importlib.import_module(row.module), row.loader)())
    except (ImportError, AttributeError, ValueError, OSError) as error:
        package = row.module.replace("_", "-")
        raise RewriteError(
            "grammar_missing",
            f"The grammar for {row.title} does not load: install the package {package}, "
            "or select the lines to change.",
        ) from error
