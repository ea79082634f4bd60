"""Fetches from the Hugging Face hub, and notices soon when it is out of reach."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import httpx

from engine.core import Cancelled, IsCancelled, OnProgress
from engine.store.known import KnownModel
from engine.store.speed import Meter

CONNECT_SECONDS = 3.0
"""A hub that does not answer the connection within this is out of reach."""

_READ_SECONDS = 20.0
_ATTEMPTS = 4


class HubUnreachable(Exception):
    """The hub cannot be reached or does not give the file; the message says why."""


def endpoint() -> str:
    """The address of the hub; `HF_ENDPOINT` moves it."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def is_offline() -> bool:
    """Whether `HF_HUB_OFFLINE` forbids the hub."""
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on")


def client() -> httpx.Client:
    """A client with the token of the hub, if there is one, and short patience."""
    from huggingface_hub.utils import build_hf_headers

    return httpx.Client(
        headers=build_hf_headers(library_name="redraft"),
        timeout=httpx.Timeout(_READ_SECONDS, connect=CONNECT_SECONDS),
        follow_redirects=True,
    )


def check_reachable(url: str) -> None:
    """Ask for the head of `url`.

    Raises:
        HubUnreachable: no answer within seconds, or one that is not a file.
    """
    if is_offline():
        raise HubUnreachable("HF_HUB_OFFLINE is set")
    try:
        with client() as session:
            answer = session.head(url, timeout=httpx.Timeout(5.0, connect=CONNECT_SECONDS))
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise HubUnreachable(f"the hub cannot be reached ({reason_of(error)})") from error
    if answer.status_code >= 400:
        raise HubUnreachable(f"the hub answers {answer.status_code} for {httpx.URL(url).path}")


def download(
    known: KnownModel, part: Path, on_progress: OnProgress, is_cancelled: IsCancelled
) -> None:
    """Fetch the file of `known` into `part`, going on after the bytes that are in it.

    Raises:
        HubUnreachable: the hub is out of reach, at once or after several attempts.
        Cancelled: `is_cancelled` answered True.
        OSError: the disk is full or cannot be written.
    """
    from huggingface_hub import hf_hub_url

    url = hf_hub_url(known.repo, known.file, endpoint=endpoint())
    check_reachable(url)
    attempts = 0
    with client() as session, part.open("ab") as out:
        meter = Meter(on_progress, known.size, out.tell())
        while out.tell() < known.size:
            before = out.tell()
            try:
                _stream(session, url, known.size, out, meter, is_cancelled)
                trouble = "the hub sends no more"
            except (httpx.HTTPError, HubUnreachable) as error:
                trouble = reason_of(error)
            # Any progress earns new attempts: only a hub that gives nothing is given up.
            attempts = attempts + 1 if out.tell() == before else 0
            if attempts >= _ATTEMPTS:
                raise HubUnreachable(f"the download from the hub broke off ({trouble})")
        out.flush()


def _stream(
    session: httpx.Client,
    url: str,
    size: int,
    out: BinaryIO,
    meter: Meter,
    is_cancelled: IsCancelled,
) -> None:
    """Append to `out` what the hub sends of `url` from there on, up to `size` bytes in all."""
    start = out.tell()
    headers = {"Accept-Encoding": "identity"}  # ranges count the bytes of the file itself
    if start:
        headers["Range"] = f"bytes={start}-"
    with session.stream("GET", url, headers=headers) as answer:
        if answer.status_code >= 400:
            raise HubUnreachable(f"it answers {answer.status_code}")
        if start and answer.status_code != 206:  # it does not know ranges: from the beginning
            out.truncate(0)
            out.seek(0)
        for chunk in answer.iter_raw():
            if is_cancelled():
                raise Cancelled
            out.write(chunk[: size - out.tell()])
            meter.at(out.tell())


def reason_of(error: Exception) -> str:
    """A few words for people."""
    if isinstance(error, httpx.ConnectTimeout):
        return f"no connection within {CONNECT_SECONDS:.0f} s"
    return (str(error) or type(error).__name__)[:200]
