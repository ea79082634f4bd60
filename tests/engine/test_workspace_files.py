"""Which files of a workspace are read: all of it in real git work trees."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from engine.workspace import files
from engine.workspace.files import find_files, fingerprint, read_texts


def git(folder: Path, *arguments: str) -> None:
    command = ["git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t", *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path) -> Path:
    git(tmp_path, "init", "-q")
    return tmp_path


def put(folder: Path, name: str, text: str | bytes, modified: int = 1_000) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(file, (modified, modified))


def read(folder: Path, *suffixes: str) -> list[str]:
    return list(read_texts(find_files([str(folder)], suffixes or ["py"])))


def test_files_of_the_language_are_read_the_newest_first(tree) -> None:
    put(tree, "old.py", "old\n", 1)
    put(tree, "deep/new.py", "new\r\nline\r\n", 3)
    put(tree, "mid.pyi", "mid\n", 2)
    put(tree, "other.js", "other\n", 4)
    git(tree, "add", "old.py")
    assert read(tree, "py", "pyi") == ["new\nline\n", "mid\n", "old\n"]


def test_what_is_ignored_secret_large_or_no_text_is_never_read(tree) -> None:
    put(tree, ".gitignore", "build/\nlocal_*.py\ntracked.py\n")
    put(tree, "good.py", "good\n")
    for name in (
        "build/made.py", "local_settings.py", "tracked.py", "secrets.py", "app_secret.py",
        "credentials.py", "conf/passwords/a.py", ".hidden/a.py", "id_rsa.py", ".env.py",
        "private_key.py", "api_keys.py",
    ):  # fmt: skip
        put(tree, name, "never\n")
    git(tree, "add", "-f", "tracked.py")
    put(tree, "key.py", 'K = """-----BEGIN RSA PRIVATE KEY-----\nnever\n"""\n')
    put(tree, "large.py", "never\n" * (files.MAX_FILE_BYTES // 6 + 1))
    put(tree, "binary.py", b"never\0\n")
    put(tree, "latin.py", b"never \xe9\n")
    put(tree, "minified.py", "never;" * 400)
    put(tree, "empty.py", "")
    (tree / "link.py").symlink_to(tree / "secrets.py")
    os.mkfifo(tree / "pipe.py")
    assert read(tree) == ["good\n"]


def test_words_that_only_contain_such_a_word_are_no_secret(tree) -> None:
    put(tree, "tokenizer.py", "a\n", 2)
    put(tree, "secretary.py", "b\n", 1)
    assert read(tree) == ["a\n", "b\n"]


def test_a_folder_outside_a_work_tree_or_not_there_gives_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    put(tmp_path, "a.py", "a\n")
    assert read(tmp_path) == []
    assert read(tmp_path / "gone") == []


def test_no_program_that_a_repository_names_is_run(tree) -> None:
    script = tree / "hook.sh"
    script.write_text(f"#!/bin/sh\ntouch '{tree}/ran'\n")
    script.chmod(0o755)
    git(tree, "config", "core.fsmonitor", str(script))
    put(tree, "a.py", "a\n")
    assert read(tree) == ["a\n"]
    assert not (tree / "ran").exists()


def test_files_and_bytes_are_bounded(tree, monkeypatch) -> None:
    for number in range(6):
        put(tree, f"f{number}.py", f"{number}\n" * 5, number + 1)
    monkeypatch.setattr(files, "MAX_FILES", 4)
    assert [text[0] for text in read(tree)] == ["5", "4", "3", "2"]
    monkeypatch.setattr(files, "MAX_BYTES", 25)
    assert [text[0] for text in read(tree)] == ["5", "4"]


def test_the_fingerprint_changes_with_name_size_and_time(tree) -> None:
    def now() -> str:
        return fingerprint(find_files([str(tree)], ["py"]))

    put(tree, "a.py", "a\n")
    seen = [now()]
    assert now() == seen[0]
    put(tree, "a.py", "ab\n")
    seen.append(now())
    put(tree, "a.py", "ab\n", 2_000)
    seen.append(now())
    put(tree, "b.py", "b\n")
    seen.append(now())
    (tree / "a.py").unlink()
    seen.append(now())
    assert len(set(seen)) == len(seen)
