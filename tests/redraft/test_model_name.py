from __future__ import annotations

from pathlib import Path

import pytest

from redraft.model_name import absolute_model


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    for name in ("mine", "org/model", "qwen2.5-coder-1.5b-instruct"):
        Path(name).mkdir(parents=True)
    Path("mine.gguf").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("mine", "{here}/mine"),
        ("./mine", "{here}/mine"),
        ("mine.gguf", "{here}/mine.gguf"),
        ("org/model", "{here}/org/model"),
        ("./missing", "{here}/missing"),
        ("missing.gguf", "{here}/missing.gguf"),
        ("../missing", "{above}/missing"),
        ("~/mine", "{here}/user/mine"),
        ("/nowhere/mine", "/nowhere/mine"),
    ],
)
def test_a_path_is_meant_from_the_folder_of_the_command(here: Path, typed: str, meant: str) -> None:
    assert absolute_model(typed) == meant.format(here=here, above=here.parent)


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "default",
        "qwen2.5-coder-1.5b-instruct",
        "org/other",
        "x" * 5000,
        "a\0b",
        "~nobody-x",
    ],
)
def test_any_other_name_stays_as_it_is(name: str | None) -> None:
    assert absolute_model(name) == name
