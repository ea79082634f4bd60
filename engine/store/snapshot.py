"""Fetches a whole model of the Hugging Face hub, weights as safetensors only."""

from __future__ import annotations

import fnmatch
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import httpx

from engine.core import Cancelled, EngineError, IsCancelled, OnProgress, Progress
from engine.store.cache import locked, models_folder, need_room, private_folder
from engine.store.child import end_process, last_meaningful_line
from engine.store.hub import HubUnreachable, client, endpoint, is_offline, reason_of
from engine.store.local import check_folder
from engine.store.speed import Meter

WANTED = ("*.safetensors", "*.json", "*.jinja", "tokenizer*", "vocab*", "merges.txt")
"""Files of a repository that are fetched: nothing that is unpickled or run."""

UNWANTED = ("*/*", "consolidated*", "*.py", "*.bin", "*.pt", "*.pth", "*.gguf")
"""Never fetched. Folders and `consolidated*` hold the same weights in other layouts."""

_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_WATCH = 0.25  # seconds between two looks at the running download


class _File(NamedTuple):
    name: str
    size: int


def snapshot(model: str, on_progress: OnProgress, is_cancelled: IsCancelled) -> Path:
    """The folder of the hub's `model` (`org/name`), fetched where it is not on this machine.

    It lies in huggingface_hub's own cache, where other programs find it too.

    Raises:
        EngineError: `model_not_found`, `unsupported_model`, `download_failed`, `disk_full`.
        Cancelled: `is_cancelled` answered True.
    """
    folder = snapshot_on_disk(model)
    if folder is not None:
        return folder
    waiting = Progress("fetching", None, "another redraft is fetching it")
    with locked("hub-" + model.replace("/", "--"), on_progress, is_cancelled, waiting):
        folder = snapshot_on_disk(model)
        if folder is not None:
            return folder
        on_progress(Progress("fetching", 0.0, f"looking for {model}"))
        files = wanted_files(model, _list_files(model))
        mark = _unfinished(model)
        mark.touch()
        _fetch(model, sum(file.size for file in files), on_progress, is_cancelled)
        mark.unlink(missing_ok=True)
    folder = snapshot_on_disk(model)
    if folder is None:
        raise EngineError(
            "unsupported_model", f"{model} has no tokenizer or config that redraft can read."
        )
    return folder


def snapshot_on_disk(model: str) -> Path | None:
    """The folder of a hub model that is whole on this machine, or None; needs no network."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if _unfinished(model).exists():
        return None
    try:
        # With the same patterns as the fetch: it checks itself that none of these files lacks.
        folder = Path(
            snapshot_download(
                model,
                local_files_only=True,
                allow_patterns=list(WANTED),
                ignore_patterns=list(UNWANTED),
            )
        )
        check_folder(folder)
    except (LocalEntryNotFoundError, EngineError, ValueError, OSError):
        return None
    has_tokenizer = any((folder / name).is_file() for name in _TOKENIZERS)
    return folder if has_tokenizer else None


def wanted_files(model: str, files: Iterable[_File]) -> list[_File]:
    """The files of a repository that redraft fetches.

    Raises:
        EngineError: `unsupported_model` for a repository without safetensors.
    """
    everything = list(files)
    wanted = [file for file in everything if _matches(file.name)]
    if any(file.name.endswith(".safetensors") for file in wanted):
        return wanted
    if any(file.name.endswith(".gguf") for file in everything):
        raise EngineError(
            "unsupported_model",
            f"{model} has only GGUF files; fetch one of them and give its path, or give the "
            "safetensors repository of the same model.",
        )
    raise EngineError(
        "unsupported_model",
        f"{model} has no safetensors, and redraft reads no .bin or .pt weights, which can run "
        "code; give another repository of the model.",
    )


def _matches(name: str) -> bool:
    def any_of(patterns: Iterable[str]) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

    return any_of(WANTED) and not any_of(UNWANTED)


def _unfinished(model: str) -> Path:
    folder = private_folder(models_folder() / "hub")
    return folder / (model.replace("/", "--") + ".unfinished")


def _list_files(model: str) -> list[_File]:
    try:
        if is_offline():
            raise HubUnreachable("HF_HUB_OFFLINE is set")
        with client() as session:
            answer = session.get(f"{endpoint()}/api/models/{model}", params={"blobs": "true"})
        if answer.status_code in (401, 403, 404):
            raise EngineError(
                "model_not_found",
                f"The hub gives no model {model} ({answer.status_code}); check the name, and for "
                "a gated or private one set HF_TOKEN.",
            )
        if answer.status_code >= 400:
            raise HubUnreachable(f"the hub answers {answer.status_code}")
        siblings = answer.json()["siblings"]
        return [_File(str(each["rfilename"]), int(each.get("size") or 0)) for each in siblings]
    except (HubUnreachable, httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise EngineError(
            "download_failed",
            f"{model} cannot be fetched: the hub cannot be reached ({reason_of(error)}); check "
            "the network, or give a local folder or .gguf file.",
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(
            "download_failed",
            f"{model} cannot be fetched: what answers at {endpoint()} is no hub; "
            "check HF_ENDPOINT and the network.",
        ) from error


def _fetch(model: str, size: int, on_progress: OnProgress, is_cancelled: IsCancelled) -> None:
    """Let a child process fetch, because a running `snapshot_download` cannot be stopped."""
    from huggingface_hub.constants import HF_HUB_CACHE

    cache = private_folder(Path(HF_HUB_CACHE))
    blobs = cache / ("models--" + model.replace("/", "--")) / "blobs"
    have = _folder_size(blobs)
    need_room(cache, max(0, size - have), model)
    meter = Meter(on_progress, size, have)
    task = json.dumps({"repo_id": model, "allow_patterns": WANTED, "ignore_patterns": UNWANTED})
    command = [sys.executable, "-m", "engine.store.snapshot_child", task]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
        )
        try:
            while True:
                try:
                    process.wait(_WATCH)
                    break
                except subprocess.TimeoutExpired:
                    if is_cancelled():
                        raise Cancelled from None
                    meter.at(_folder_size(blobs))
        finally:
            end_process(process)
        if process.returncode == 0:
            return
        said.seek(0)
        reason = last_meaningful_line(said.read().decode("utf-8", "replace"))
    raise EngineError(
        "disk_full" if "No space left" in reason else "download_failed",
        f"{model} could not be fetched: {reason}; run again, it goes on where it was.",
    )


def _folder_size(folder: Path) -> int:
    total = 0
    for file in folder.glob("*"):
        try:
            total += file.stat().st_size
        except OSError:  # renamed meanwhile
            continue
    return total
