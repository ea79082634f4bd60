"""The ready-made instructions of the code action menu. Data, and two look-ups.

Each instruction is one clear imperative sentence or two, for a small instruct model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Preset(NamedTuple):
    """One ready-made instruction.

    Attributes:
        id: the end of the code action's kind, and `preset` of `redraft/rewrite`.
        title: what the menu shows; `title_by_language` has the exceptions.
        instruction: what the model is asked; `instruction_by_language` has the exceptions.
        languages: LSP ids for which it makes sense; empty for all.
    """

    id: str
    title: str
    instruction: str
    languages: frozenset[str] = frozenset()
    title_by_language: Mapping[str, str] = {}
    instruction_by_language: Mapping[str, str] = {}


_JSDOC = (
    "Add a JSDoc comment directly above the definition that says in one sentence what it does "
    "and describes each parameter and the result; leave all other lines as they are."
)
_JAVADOC = (
    "Add a Javadoc comment directly above the definition that says in one sentence what it does "
    "and describes each parameter, the result and the exceptions thrown; leave all other lines "
    "as they are."
)
_LINE_COMMENT = (
    "Add a documentation comment directly above the definition that says in one sentence what it "
    "does and describes each parameter and the result; leave all other lines as they are."
)

PRESETS: tuple[Preset, ...] = (
    Preset(
        id="types",
        title="Add type hints",
        instruction=(
            "Add a type annotation to every parameter, to the result, and to every variable "
            "whose type is not clear from its value; do not change what the code does."
        ),
        languages=frozenset({"python", "typescript", "typescriptreact", "php"}),
        title_by_language={
            "typescript": "Add type annotations",
            "typescriptreact": "Add type annotations",
            "php": "Add type declarations",
        },
        instruction_by_language={
            "python": (
                "Add a type hint to every parameter and to the return value; do not change what "
                "the code does."
            ),
            "php": (
                "Add a type declaration to every parameter and to the return value; do not "
                "change what the code does."
            ),
        },
    ),
    Preset(
        id="docs",
        title="Add a doc comment",
        instruction=_LINE_COMMENT,
        title_by_language={"python": "Add a docstring"},
        instruction_by_language={
            "python": (
                "Add a docstring as the first statement inside the body, directly below the "
                "`def` or `class` line and indented like the body; it says in one sentence what "
                "the code does and describes each parameter and the result. Leave all other "
                "lines as they are."
            ),
            "javascript": _JSDOC,
            "javascriptreact": _JSDOC,
            "typescript": _JSDOC,
            "typescriptreact": _JSDOC,
            "java": _JAVADOC,
            "csharp": (
                "Add an XML documentation comment (`///`) directly above the definition with a "
                "summary, each parameter and the result; leave all other lines as they are."
            ),
            "rust": (
                "Add a doc comment (`///`) directly above the item that says in one sentence "
                "what it does and names its errors and panics; leave all other lines as they are."
            ),
            "go": (
                "Add a doc comment (`//`) directly above the declaration that begins with its "
                "name and says what it does; leave all other lines as they are."
            ),
        },
    ),
    Preset(
        id="simplify",
        title="Simplify",
        instruction=(
            "Simplify this code: remove needless branches, variables and repetition; keep the "
            "names, the parameters and the behaviour exactly as they are."
        ),
    ),
    Preset(
        id="errors",
        title="Handle errors",
        instruction=(
            "Add error handling for the calls and inputs that can fail, in the way that is usual "
            "in this language, with clear error messages; keep the behaviour of the successful "
            "case."
        ),
        instruction_by_language={
            "python": (
                "Handle the errors that can occur here: raise a clear exception for invalid "
                "arguments and catch only the specific exceptions that the calls can raise; keep "
                "the behaviour of the successful case."
            ),
            "go": (
                "Check every returned error and pass it on wrapped with context by "
                "`fmt.Errorf` and `%w`; keep the behaviour of the successful case."
            ),
            "rust": (
                "Replace `unwrap` and `expect` by the `?` operator or explicit handling of the "
                "error; keep the behaviour of the successful case."
            ),
        },
    ),
)

_BY_ID: Mapping[str, Preset] = {preset.id: preset for preset in PRESETS}
PRESET_IDS: tuple[str, ...] = tuple(_BY_ID)


def presets_for(language: str) -> tuple[Preset, ...]:
    """The presets that make sense in a language; the empty string is an unknown one."""
    return tuple(p for p in PRESETS if not p.languages or language in p.languages)


def preset_title(preset: Preset, language: str) -> str:
    """What the menu shows."""
    return preset.title_by_language.get(language, preset.title)


def preset_instruction(preset_id: str, language: str) -> str | None:
    """The instruction of a preset, or None when there is no such preset."""
    preset = _BY_ID.get(preset_id)
    if preset is None:
        return None
    return preset.instruction_by_language.get(language, preset.instruction)


def fix_instruction(message: str, line: str) -> str:
    """The instruction that fixes a diagnostic, which may point at a line of code."""
    problem = " ".join(message.split())
    if not line.strip():
        return f"Fix this problem: {problem}"
    return f"Fix this problem in the line `{line.strip()}`: {problem}"
