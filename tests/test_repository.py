"""What must hold of the repository as a whole."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]

# Patterns are put together from pieces so that this file does not hold what it looks for.
MACHINE_PATH = re.compile(
    r"(?<![\w.:/-])/(?:" + "|".join(["work", "root", "home", "Users", "workspace"]) + r")/[\w.-]+"
)
EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.(?:com|org|net|io|de|dev|edu)\b")
PACKAGE_HOST = re.compile(
    "|".join(
        [
            r"index[-_]url\s*=",
            r"extra-index",
            r"files\.pythonhosted",
            r"pypi\.org/simple",
            r"artifactory",
            r"nexus\.",
            r"devpi",
        ]
    )
    + r"|/opt/"
    + "pypi",
    re.IGNORECASE,
)


def _tracked() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = done.stdout.decode("utf-8").split("\0")
    return [ROOT / name for name in names if name and (ROOT / name).is_file()]


def _texts() -> Iterator[tuple[Path, str]]:
    for path in _tracked():
        if path == Path(__file__).resolve():
            continue
        try:
            yield path, path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


@pytest.mark.parametrize(
    ("pattern", "example"),
    [
        (MACHINE_PATH, "see /" + "home/somebody for it"),
        (EMAIL, "write to a.b@" + "example.org"),
        (PACKAGE_HOST, "pip install --extra-" + "index-url x"),
    ],
    ids=["machine paths", "e-mail addresses", "package hosts"],
)
def test_no_tracked_file_holds(pattern: re.Pattern[str], example: str) -> None:
    assert pattern.search(example)
    hits = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path, text in _texts()
        for match in pattern.finditer(text)
    ]
    assert hits == []


def test_no_tracked_file_is_large() -> None:
    large = [path.name for path in _tracked() if path.stat().st_size > 1_000_000]
    assert large == []


def _project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.mark.parametrize("script", ["redraft", "redraft-lsp"])
def test_every_console_script_names_a_function(script: str) -> None:
    scripts = _project()["scripts"]
    assert set(scripts) == {"redraft", "redraft-lsp"}
    module, _, function = scripts[script].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_licence_is_apache_2() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert _project()["license"] == "Apache-2.0"


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return re.sub(r"[-_.]+", "-", found.group()).lower()


def test_every_direct_dependency_is_pinned_for_every_python() -> None:
    pinned: dict[str, list[str]] = {}
    for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            assert re.match(r"[\w.-]+==\S+(; python_version (>=|<) \"3\.11\")?$", line), line
            pinned.setdefault(_name(line), []).append(line.partition(";")[2].strip())
    for markers in pinned.values():
        assert markers in ([""], ['python_version >= "3.11"', 'python_version < "3.11"'])
    project = _project()
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    assert {_name(requirement) for requirement in wanted} <= set(pinned)


def test_the_ci_script_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    assert script.read_text(encoding="utf-8").startswith("#!/usr/bin/env bash\n")


def test_every_test_that_the_architecture_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", (ROOT / "ARCHITECTURE.md").read_text())
    assert len(named) >= 20
    for path, name in named:
        assert f"def {name}(" in (ROOT / path).read_text(), f"{path} has no {name}"
