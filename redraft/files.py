"""Reading a source file without losing what it is, and writing it back atomically.

A file is bytes. What is edited is its text, so the encoding, the byte-order mark and the
line ends are kept beside it, and every byte outside the edit comes back as it was.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lsp_server.core import RewriteError
from lsp_server.text.document import MAX_DOCUMENT_CHARS

# A character takes at most 4 bytes in UTF-8 and in UTF-16, and a BOM at most 3.
_MAX_BYTES = 4 * MAX_DOCUMENT_CHARS + 3

_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class Encoding(NamedTuple):
    """How text became bytes.

    Attributes:
        codec: Python's name of the codec, the byte-order mark not included.
        bom: the bytes before the text, maybe none.
        label: the name for people.
    """

    codec: str
    bom: bytes
    label: str


def work_tree_of(path: Path) -> tuple[str, ...]:
    """Return the git work tree that holds a file, as the one folder of its workspace, or none."""
    return next(
        ((str(folder),) for folder in path.absolute().parents if (folder / ".git").exists()), ()
    )


UTF_8 = Encoding("utf-8", b"", "UTF-8")
UTF_8_BOM = Encoding("utf-8", codecs.BOM_UTF8, "UTF-8 with BOM")
UTF_16_LE = Encoding("utf-16-le", codecs.BOM_UTF16_LE, "UTF-16 LE")
UTF_16_BE = Encoding("utf-16-be", codecs.BOM_UTF16_BE, "UTF-16 BE")
_WITH_BOM = (UTF_8_BOM, UTF_16_LE, UTF_16_BE)


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file as it was read.

    Attributes:
        path: the file itself: symbolic links are followed.
        shown: the path as the user gave it, for messages.
        data: the bytes on disk.
        text: the decoded text, line ends as they are, without the byte-order mark.
        encoding: how to turn a text into bytes again.
    """

    path: Path
    shown: str
    data: bytes
    text: str
    encoding: Encoding


def read_source(path: str | os.PathLike[str]) -> SourceFile:
    """Read a text file of at most `MAX_DOCUMENT_CHARS` characters.

    Raises:
        RewriteError: `file_missing`, `file_is_folder`, `file_not_regular`,
            `file_unreadable`, `file_not_text` or `too_large`.
    """
    shown = os.fspath(path)
    real = Path(os.path.realpath(shown))
    data = _read_bytes(real, shown)
    text, encoding = decode(data, shown)
    if len(text) > MAX_DOCUMENT_CHARS:
        raise _too_large(shown, f"{len(text):,} characters")
    return SourceFile(real, shown, data, text, encoding)


def decode(data: bytes, shown: str) -> tuple[str, Encoding]:
    """Decode UTF-8, or UTF-16 with a byte-order mark.

    Raises:
        RewriteError: `file_not_text`, naming the first byte that is wrong.
    """
    encoding = next((e for e in _WITH_BOM if data.startswith(e.bom)), UTF_8)
    body = data[len(encoding.bom) :]
    try:
        text = body.decode(encoding.codec)
    except UnicodeDecodeError as error:
        offset = len(encoding.bom) + error.start
        line = _line_after(body[: error.start].decode(encoding.codec, "replace"))
        raise RewriteError(
            "file_not_text",
            f"{shown} is not {encoding.label}: byte 0x{body[error.start]:02x} at offset {offset}"
            f" (line {line}) cannot be decoded. Convert the file to UTF-8 first.",
        ) from None
    nul = text.find("\0")
    if nul >= 0:
        line = _line_after(text[:nul])
        raise RewriteError(
            "file_not_text",
            f"{shown} is a binary file: it holds a NUL on line {line}, so it is left alone.",
        )
    return text, encoding


def encode(text: str, encoding: Encoding) -> bytes:
    """Turn a text into bytes, the byte-order mark first; the reverse of `decode`."""
    return encoding.bom + text.encode(encoding.codec)


def write_source(source: SourceFile, text: str) -> None:
    """Replace the file's content by `text` in one step, in the file's own encoding.

    The bytes go to a temporary file beside it, with the same mode and, where allowed,
    the same owner, and take its place only when they are safely on disk. On any error the file is
    untouched and the temporary file is gone.

    Raises:
        RewriteError: `file_changed` when the file is no longer what was read,
            `file_no_space` or `file_unwritable`.
    """
    temporary: Path | None = None
    try:
        before = source.path.stat()
        handle, name = tempfile.mkstemp(
            prefix=f".{source.path.name[:40]}.", suffix=".redraft", dir=source.path.parent
        )
        temporary = Path(name)
        _fill(handle, encode(text, source.encoding), before)
        if source.path.read_bytes() != source.data:
            raise RewriteError(
                "file_changed",
                f"{source.shown} was changed by something else meanwhile, so it was not written."
                " Run the command again.",
            )
        os.replace(temporary, source.path)
        temporary = None
        _sync_folder(source.path.parent)
    except OSError as error:
        raise _write_error(source.shown, error) from None
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink()


def _read_bytes(real: Path, shown: str) -> bytes:
    try:
        mode = real.stat().st_mode
        if stat.S_ISDIR(mode):
            raise RewriteError("file_is_folder", f"{shown} is a folder. Name a file.")
        if not stat.S_ISREG(mode):
            raise RewriteError("file_not_regular", f"{shown} is not a regular file.")
        with real.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        raise RewriteError("file_missing", f"There is no file {shown}.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise RewriteError("file_unreadable", f"{shown} cannot be read: {reason}.") from None
    if len(data) > _MAX_BYTES:
        raise _too_large(shown, f"{real.stat().st_size:,} bytes")
    return data


def _line_after(text: str) -> int:
    """The 1-based number of the line that comes to stand after `text`."""
    return len(re.findall(r"\r\n|\r|\n", text)) + 1


def _fill(handle: int, data: bytes, like: os.stat_result) -> None:
    with os.fdopen(handle, "wb") as file:
        if hasattr(os, "fchown"):
            # Only root may give files away; the group often works for its members.
            with contextlib.suppress(OSError):
                os.fchown(handle, like.st_uid, like.st_gid)
        if hasattr(os, "fchmod"):
            os.fchmod(handle, stat.S_IMODE(like.st_mode))
        file.write(data)
        file.flush()
        os.fsync(handle)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself last; some file systems cannot, and the file is whole anyway."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write_error(shown: str, error: OSError) -> RewriteError:
    if error.errno in _NO_SPACE:
        return RewriteError(
            "file_no_space",
            f"{shown} was not written because there is no room for it on the disk;"
            " the file is as it was.",
        )
    return RewriteError(
        "file_unwritable",
        f"{shown} cannot be written: {error.strerror or error}; the file is as it was.",
    )


def _too_large(shown: str, size: str) -> RewriteError:
    return RewriteError(
        "too_large",
        f"{shown} holds {size}; redraft edits files of at most {MAX_DOCUMENT_CHARS:,} characters.",
    )
