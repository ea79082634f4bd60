"""The door: a private Unix socket, or a loopback port with a token; and `engine.json`."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from engine.server.runtime_folder import StartError, make_private, user_id, write_private

# Linux takes 107 bytes, macOS 103; some room is left for the one that counts otherwise.
MAX_SOCKET_PATH = 100
BACKLOG = 128


class Door(NamedTuple):
    """A listening socket and what clients need to find it.

    Attributes:
        listener: listens already.
        url: `unix:/path` or `http://127.0.0.1:PORT`.
        token: the bearer token of a TCP door, else None.
        path: the socket's file, or None.
    """

    listener: socket.socket
    url: str
    token: str | None
    path: Path | None

    def close(self) -> None:
        """Stop listening and remove the socket's file."""
        self.listener.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def open_door(runtime: Path, *, tcp: bool) -> Door:
    """Listen. The caller holds `engine.lock`, so a socket that is there is stale.

    Raises:
        StartError: it cannot be opened.
    """
    try:
        if tcp or not hasattr(socket, "AF_UNIX"):
            return _open_port()
        return _open_socket(socket_path(runtime))
    except OSError as error:
        raise StartError(f"The engine cannot listen: {error.strerror or error}.") from None


def socket_path(runtime: Path) -> Path:
    """`engine.sock` in the runtime folder, or in a short folder where that path is too long."""
    path = runtime / "engine.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
        return path
    # Always the same for one runtime folder, so that a stale socket is found again.
    name = hashlib.sha256(os.fsencode(runtime)).hexdigest()[:12]
    for parent in (tempfile.gettempdir(), "/tmp"):
        short = Path(parent) / f"redraft-{user_id()}-{name}" / "s"
        if len(os.fsencode(short)) <= MAX_SOCKET_PATH:
            make_private(short.parent)
            return short
    raise StartError(f"The path of the runtime folder is too long for a socket: {runtime}")


def _open_socket(path: Path) -> Door:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
        path.chmod(0o600)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(mask)
    listener.listen(BACKLOG)
    return Door(listener, f"unix:{path}", None, path)


def _open_port() -> Door:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.bind(("127.0.0.1", 0))
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    port = listener.getsockname()[1]
    return Door(listener, f"http://127.0.0.1:{port}", secrets.token_urlsafe(32), None)


def publish(runtime: Path, door: Door, version: str) -> bytes:
    """Write `engine.json` (mode 0600), and return what was written."""
    record = {"url": door.url, "token": door.token, "pid": os.getpid(), "version": version}
    data = json.dumps(record).encode()
    write_private(runtime / "engine.json", data)
    return data


def withdraw(runtime: Path, published: bytes) -> None:
    """Remove `engine.json`, unless another engine has written its own meanwhile."""
    path = runtime / "engine.json"
    with suppress(OSError):
        if path.read_bytes() == published:
            path.unlink()
