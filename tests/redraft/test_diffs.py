"""Diffs: what `patch` and `git apply` make of them, and what people see."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.core import Hunk
from lsp_server.text.positions import LineIndex
from redraft.diffs import LineEdit, line_edits, unified_diff

LINES = st.lists(st.sampled_from(["a", "b", "", "  c", "d\r", "é"]), max_size=30)
TEXTS = st.tuples(LINES, st.booleans()).map(
    lambda t: "\n".join(t[0]) + ("\n" if t[0] and t[1] else "")
)


def _run(command: list[str], folder: Path, diff: str) -> None:
    done = subprocess.run(command, cwd=folder, input=diff.encode(), capture_output=True)
    assert done.returncode == 0, (done.stdout + done.stderr).decode()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\nc\n", "a\nB\nc\n"),
        ("a\nb\nc", "a\nb\nC"),
        ("a\nb", "a\nb\n"),
        ("a\nb\n", "a\nb"),
        ("", "a\n"),
        ("one\r\ntwo\r\nthree\r\n", "one\r\n2\r\nthree\r\n"),
        ("\ufeffa\nb\n", "\ufeffa\nB\n"),
        ("".join(f"{n}\n" for n in range(100)), "".join(f"{n * (n != 7)}\n" for n in range(99))),
    ],
)
@pytest.mark.parametrize("name", ["a.py", "a file.py"])
@pytest.mark.parametrize(
    "command", [["patch", "--binary", "-p1"], ["git", "apply"]], ids=["patch", "git"]
)
def test_patch_and_git_apply_make_the_new_text_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command, name, old, new
) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.write_bytes(old.encode())
    _run(command, tmp_path, unified_diff(name, old, new))
    assert path.read_bytes() == new.encode()


@given(TEXTS, TEXTS)
def test_a_diff_read_back_by_hand_gives_both_texts(old: str, new: str) -> None:
    diff = unified_diff("a.py", old, new)
    if old == new:
        assert diff == ""
        return
    before, after = _read_back(old, diff)
    assert before == old
    assert after == new


def _read_back(old: str, diff: str) -> tuple[str, str]:
    """Apply a diff as simply as possible; returns the old text as the diff has it, and the new."""
    lines = old.split("\n")
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    before, after, at = [], [], 0
    rows = diff.split("\n")[2:-1]
    for index, row in enumerate(rows):
        if row.startswith("@@"):
            start, count = (int(n) for n in row.split()[1][1:].split(","))
            skip = lines[at : start - 1 if count else start]
            before += skip
            after += skip
            at += len(skip)
            continue
        if row.startswith("\\"):
            continue
        ends = index + 1 < len(rows) and rows[index + 1].startswith("\\")
        line = row[1:] + ("" if ends else "\n")
        if row[0] in " -":
            before.append(line)
            at += 1
        if row[0] in " +":
            after.append(line)
    return "".join(before + lines[at:]), "".join(after + lines[at:])


def test_paths_outside_the_current_folder_are_named_by_their_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    diff = unified_diff(str(tmp_path / "there" / "a.py"), "a\n", "b\n")
    assert diff.splitlines()[:2] == ["--- a/a.py", "+++ b/a.py"]
    diff = unified_diff(str(tmp_path / "here" / "in" / "a.py"), "a\n", "b\n")
    assert diff.splitlines()[0] == "--- a/in/a.py"


def test_a_name_with_odd_characters_is_quoted_as_git_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert unified_diff('q"\n.py', "a\n", "b\n").splitlines()[0] == '--- "a/q\\042\\012.py"'


def test_hunks_become_whole_lines_with_the_numbers_of_both_sides() -> None:
    text = "one\ntwo\nthree\nfour\n"
    hunks = [
        Hunk("h1", 4, 4, "", "new\n"),  # a line put in
        Hunk("h2", 10, 13, "ree", "REE"),  # inside a line
        Hunk("h3", 13, 18, "\nfour", ""),  # the end of one line and the next one
    ]
    assert line_edits(text, LineIndex(text), [hunks[0]]) == [LineEdit(2, 2, (), ("new",))]
    assert line_edits(text, LineIndex(text), [hunks[1]]) == [LineEdit(3, 3, ("three",), ("thREE",))]
    assert line_edits(text, LineIndex(text), [hunks[2]]) == [LineEdit(4, 4, ("four",), ())]
    both = [hunks[0], Hunk("h2", 14, 18, "four", "4")]
    assert line_edits(text, LineIndex(text), both)[1] == LineEdit(4, 5, ("four",), ("4",))
