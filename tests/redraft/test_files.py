"""Reading and writing files: nothing outside the edit may change, on any disk."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsp_server.core import RewriteError
from lsp_server.text.document import MAX_DOCUMENT_CHARS
from redraft.files import (
    UTF_8,
    UTF_8_BOM,
    UTF_16_BE,
    UTF_16_LE,
    decode,
    encode,
    read_source,
    work_tree_of,
    write_source,
)

ENCODINGS = [UTF_8, UTF_8_BOM, UTF_16_LE, UTF_16_BE]
LINES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\ufeff"))
TEXTS = st.lists(st.tuples(LINES, st.sampled_from(["\n", "\r\n", "\r", ""]))).map(
    lambda parts: "".join(line + end for line, end in parts)
)


def _error(path: Path) -> RewriteError:
    with pytest.raises(RewriteError) as caught:
        read_source(path)
    return caught.value


@given(before=TEXTS, old=TEXTS, after=TEXTS, new=TEXTS, encoding=st.sampled_from(ENCODINGS))
def test_bytes_outside_the_span_are_identical_after_a_write(
    tmp_path_factory: pytest.TempPathFactory, before, old, after, new, encoding
) -> None:
    path = tmp_path_factory.mktemp("files") / "a.py"
    data = encode(before + old + after, encoding)
    path.write_bytes(data)

    source = read_source(path)
    assert source.encoding == encoding
    assert source.text == before + old + after
    write_source(source, before + new + after)

    written = path.read_bytes()
    head, tail = encode(before, encoding), after.encode(encoding.codec)
    assert written.startswith(head)
    assert written.endswith(tail)
    assert written[len(head) : len(written) - len(tail)] == new.encode(encoding.codec)


@given(st.binary())
def test_any_bytes_are_read_back_exactly_or_refused(data: bytes) -> None:
    try:
        text, encoding = decode(data, "x")
    except RewriteError:
        return
    assert encode(text, encoding) == data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"one\r\ntwo\rth\xe9ree\n", "is not UTF-8: byte 0xe9 at offset 11 (line 3)"),
        (b"\xef\xbb\xbfa\n\xff", "is not UTF-8 with BOM: byte 0xff at offset 5 (line 2)"),
        (b"\xff\xfea\x00b", "is not UTF-16 LE: byte 0x62 at offset 4 (line 1)"),
        (b"\xfe\xff\x00\n\xdc\x00", "is not UTF-16 BE: byte 0xdc at offset 4 (line 2)"),
        (b"\x7fELF\n\x00\x01", "is a binary file: it holds a NUL on line 2"),
    ],
)
def test_a_file_that_is_not_text_is_refused_with_the_first_wrong_place(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(data)
    error = _error(path)
    assert error.code == "file_not_text"
    assert message in error.message


def test_missing_files_folders_and_devices_are_refused(tmp_path: Path) -> None:
    assert _error(tmp_path / "absent.py").code == "file_missing"
    assert _error(tmp_path).code == "file_is_folder"
    assert _error(Path(os.devnull)).code == "file_not_regular"


@pytest.mark.parametrize(
    ("size", "named"),
    [(5_000_000, "5,000,000 characters"), (4 * MAX_DOCUMENT_CHARS + 4, "8,000,004 bytes")],
)
def test_a_file_over_the_limit_is_refused_with_size_and_limit(
    tmp_path: Path, size: int, named: str
) -> None:
    path = tmp_path / "big.py"
    path.write_bytes(b"x" * size)
    error = _error(path)
    assert error.code == "too_large"
    assert named in error.message
    assert "2,000,000 characters" in error.message


def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big.py"
    path.write_bytes(b"x" * MAX_DOCUMENT_CHARS)
    assert len(read_source(path).text) == MAX_DOCUMENT_CHARS


def test_the_mode_is_kept_and_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("old")
    path.chmod(0o751)
    write_source(read_source(path), "new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o751
    assert os.listdir(tmp_path) == ["run.sh"]


def test_a_symbolic_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "a.py"
    target.write_text("old")
    link = tmp_path / "link.py"
    link.symlink_to(target)
    write_source(read_source(link), "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("old")
    source = read_source(path)
    path.write_text("somebody else's")
    with pytest.raises(RewriteError) as caught:
        write_source(source, "new")
    assert caught.value.code == "file_changed"
    assert path.read_text() == "somebody else's"
    assert os.listdir(tmp_path) == ["a.py"]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "file_no_space"),
        (errno.EDQUOT, "file_no_space"),
        (errno.EIO, "file_unwritable"),
    ],
)
def test_a_failed_write_leaves_the_file_and_no_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    path = tmp_path / "a.py"
    path.write_text("old")
    source = read_source(path)

    def fails(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(RewriteError) as caught:
        write_source(source, "new")
    assert caught.value.code == code
    assert "the file is as it was" in caught.value.message
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.py"]


def test_a_deleted_file_is_not_brought_back(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("old")
    source = read_source(path)
    path.unlink()
    with pytest.raises(RewriteError) as caught:
        write_source(source, "new")
    assert caught.value.code == "file_unwritable"
    assert os.listdir(tmp_path) == []


def test_the_workspace_of_a_file_is_the_git_work_tree_around_it(tmp_path) -> None:
    deep = tmp_path / "tree" / "deep"
    deep.mkdir(parents=True)
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere\n")  # as a linked work tree has it
    assert work_tree_of(deep / "a.py") == (str(tmp_path / "tree"),)
    assert work_tree_of(tmp_path / "a.py") == ()
