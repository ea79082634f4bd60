"""The one-way rules of the design: who may import whom, and what must stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("drafters", "engine", "lsp_server", "redraft", "benchmarks")
HEAVY = ("torch", "transformers", "accelerate", "safetensors")

MAY_IMPORT = {
    "drafters": {"drafters"},
    "engine": {"engine", "drafters"},
    "lsp_server": {"lsp_server"},
    "redraft": {"redraft", "lsp_server", "engine", "drafters"},
}

# Heavy libraries that a room may not name at all, not even inside a function.
NEVER = {
    "lsp_server": {*HEAVY, "numpy"},
    "redraft": set(HEAVY),
}

# Modules that light commands import; heavy libraries only inside functions.
LIGHT = ("engine/store", "engine/core.py", "engine/server/runtime_folder.py", "engine/__main__.py")


def _modules(place: str) -> list[Path]:
    path = ROOT / place
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def _imports(path: Path, only_at_import: bool = False) -> Iterator[str]:
    """Top-level names of the packages that a module imports."""
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if only_at_import and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield (node.module or "").partition(".")[0]
        pending.extend(ast.iter_child_nodes(node))


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    modules = _modules(room)
    assert modules
    for path in modules:
        ours = {name for name in _imports(path) if name in ROOMS}
        assert ours <= MAY_IMPORT[room], path


@pytest.mark.parametrize("room", NEVER)
def test_a_light_room_never_names_a_heavy_library(room: str) -> None:
    for path in _modules(room):
        assert not NEVER[room] & set(_imports(path)), path


@pytest.mark.parametrize("place", LIGHT)
def test_what_light_commands_import_loads_heavy_libraries_only_when_used(place: str) -> None:
    modules = _modules(place)
    assert modules
    for path in modules:
        assert not set(HEAVY) & set(_imports(path, only_at_import=True)), path


def test_no_room_of_the_package_imports_the_tests() -> None:
    for room in ROOMS:
        for path in _modules(room):
            assert not {"tests", "pytest", "hypothesis"} & set(_imports(path)), path


@pytest.mark.parametrize(
    "modules",
    [
        "lsp_server.main, lsp_server.rewrite, redraft.cli",
        "redraft.commands.rewrite, redraft.demo.__main__",
        "redraft.commands.models, engine.store",
        "redraft.commands.engine",
    ],
)
def test_importing_it_loads_neither_torch_nor_transformers(modules: str) -> None:
    code = f"import sys, {modules}\nprint(sorted({set(HEAVY)!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
