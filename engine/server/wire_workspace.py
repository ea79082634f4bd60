"""`redraft.workspace` and `redraft.window` of a request: where drafts may come from.

Of a workspace only the form is checked here, on the event loop. Whether a folder is there is
seen by the process that reads it (engine/workspace/child.py); one that is not gives no drafts.
"""

from __future__ import annotations

import os
import re
from typing import Any

from engine.core import Workspace
from engine.server.wire_errors import InvalidRequest

MAX_FOLDERS = 16
MAX_SUFFIXES = 16
MAX_PATH_CHARS = 4096
MAX_WINDOW_CHARS = 64

_SUFFIX = re.compile(r"[A-Za-z0-9_+-]{1,16}")


def workspace_of(value: Any) -> Workspace | None:
    """Return the workspace that a request names, or None.

    Raises:
        InvalidRequest: it is not one.
    """
    if value is None:
        return None
    param = "redraft.workspace"
    if not isinstance(value, dict):
        raise InvalidRequest(param, f"`{param}` must be an object of `folders` and `suffixes`.")
    folders, suffixes = value.get("folders"), value.get("suffixes")
    if not isinstance(folders, list) or len(folders) > MAX_FOLDERS:
        raise InvalidRequest(
            f"{param}.folders", f"`{param}.folders` must be a list of up to {MAX_FOLDERS} paths."
        )
    if not all(isinstance(folder, str) and _is_path(folder) for folder in folders):
        raise InvalidRequest(
            f"{param}.folders", f"`{param}.folders` may hold only absolute paths of folders."
        )
    if not isinstance(suffixes, list) or len(suffixes) > MAX_SUFFIXES:
        raise InvalidRequest(
            f"{param}.suffixes",
            f"`{param}.suffixes` must be a list of up to {MAX_SUFFIXES} endings of file names.",
        )
    if not all(isinstance(suffix, str) and _SUFFIX.fullmatch(suffix) for suffix in suffixes):
        raise InvalidRequest(
            f"{param}.suffixes",
            f"`{param}.suffixes` may hold only endings such as `py`, without the dot.",
        )
    if not folders or not suffixes:
        return None
    # In one order, so that two windows on the same folders share an index.
    return Workspace(tuple(sorted(set(folders))), tuple(sorted(set(suffixes))))


def _is_path(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return os.path.isabs(text) and "\0" not in text and len(text) <= MAX_PATH_CHARS


def window_of(value: Any) -> str | None:
    """Turn the JSON value of `redraft.window` into the name of an editor window.

    Raises:
        InvalidRequest: it is not a text, or empty, too long or not printable.
    """
    if value is None:
        return None
    if isinstance(value, str) and 0 < len(value) <= MAX_WINDOW_CHARS and value.isprintable():
        return value
    raise InvalidRequest(
        "redraft.window",
        f"`redraft.window` must be a text of 1 to {MAX_WINDOW_CHARS} printable characters.",
    )
