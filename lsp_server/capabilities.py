"""What the client can do and how the user set the server up, resolved once.

Nothing else reads the client's JSON: later code asks these two frozen records.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lsprotocol import types
from pygls.capabilities import ServerCapabilitiesBuilder, get_capability
from pygls.uris import to_fs_path

from lsp_server.engine_http import API_KEY_VARIABLE, ENGINE_URL_VARIABLE
from lsp_server.text.positions import Encoding

MAX_FOLDERS = 16
"""Folders of the workspace that are named to the engine, which takes no more."""

_ENCODINGS: Mapping[str, Encoding] = {"utf-8": "utf-8", "utf-16": "utf-16", "utf-32": "utf-32"}


@dataclass(frozen=True, slots=True)
class ClientCapabilities:
    """The client's abilities that this server acts on.

    Attributes:
        encoding: how the client counts columns.
        document_changes: edits carry the document's version.
        apply_edit: the client answers `workspace/applyEdit`.
        progress: the client shows progress that the server begins.
        hunks: the client draws `redraft/hunks`.
        action_literals: code actions may be more than commands.
        llm_tag: code actions may be marked as made by a model.
        name, version: as the client calls itself, or empty.
    """

    encoding: Encoding = "utf-16"
    document_changes: bool = False
    apply_edit: bool = False
    progress: bool = False
    hunks: bool = False
    action_literals: bool = False
    llm_tag: bool = False
    name: str = ""
    version: str = ""


def resolve_capabilities(params: types.InitializeParams) -> ClientCapabilities:
    """Read the client's capabilities; whatever is missing counts as absent."""
    given = params.capabilities
    name = params.client_info.name if params.client_info else ""
    tags = get_capability(given, "text_document.code_action.tag_support.value_set", None) or ()
    return ClientCapabilities(
        encoding=_encoding(given),
        # Neovim 0.11 does not declare documentChanges but honours it, and only with
        # it does it look at the version.
        document_changes="neovim" in name.lower()
        or bool(get_capability(given, "workspace.workspace_edit.document_changes", False)),
        apply_edit=bool(get_capability(given, "workspace.apply_edit", False)),
        progress=bool(get_capability(given, "window.work_done_progress", False)),
        hunks=_wants_hunks(given.experimental),
        action_literals=(
            get_capability(given, "text_document.code_action.code_action_literal_support", None)
            is not None
        ),
        llm_tag=types.CodeActionTag.LlmGenerated in tags,
        name=name,
        version=(params.client_info.version or "") if params.client_info else "",
    )


def workspace_folders(params: types.InitializeParams) -> tuple[str, ...]:
    """Return the paths of the folders that are open in the client, those on this machine."""
    folders = params.workspace_folders
    uris = [folder.uri for folder in folders] if folders else [params.root_uri]
    paths = [to_fs_path(uri) for uri in uris if uri and uri.startswith("file:")]
    return tuple(path for path in paths if path and os.path.isabs(path))[:MAX_FOLDERS]


def _encoding(given: types.ClientCapabilities) -> Encoding:
    chosen = ServerCapabilitiesBuilder.choose_position_encoding(given)
    return _ENCODINGS.get(getattr(chosen, "value", chosen), "utf-16")


def _wants_hunks(experimental: Any) -> bool:
    if not isinstance(experimental, Mapping):
        return False
    redraft = experimental.get("redraft")
    return isinstance(redraft, Mapping) and redraft.get("hunks") is True


@dataclass(frozen=True, slots=True)
class Settings:
    """The user's settings; see "Configuration" in docs/lsp-extensions.md."""

    model: str | None = None
    draft_model: str | None = None
    draft: bool = True
    workspace: bool = True
    engine_url: str | None = None
    api_key: str | None = field(default=None, repr=False)


_SETTING_TYPES: Mapping[str, tuple[str, type, str]] = {
    "model": ("model", str, "a text"),
    "draftModel": ("draft_model", str, "a text"),
    "draft": ("draft", bool, "true or false"),
    "workspace": ("workspace", bool, "true or false"),
    "engineUrl": ("engine_url", str, "a text"),
    "apiKey": ("api_key", str, "a text"),
}


def read_settings(options: Any, environment: Mapping[str, str]) -> tuple[Settings, str]:
    """Read `initializationOptions`; the environment fills what they leave open.

    Returns the settings and one sentence about what could not be read, or the empty
    string. An option of the wrong type is left at its default; an unknown one is ignored.
    """
    values: dict[str, Any] = {}
    wrong: list[str] = []
    if options is not None and not isinstance(options, Mapping):
        wrong.append("`initializationOptions` must be an object")
        options = None
    for key, (name, kind, words) in _SETTING_TYPES.items():
        value = (options or {}).get(key)
        if value is None or value == "":
            continue
        if not isinstance(value, kind):
            wrong.append(f"`{key}` must be {words}")
            continue
        values[name] = value
    if "engine_url" not in values and environment.get(ENGINE_URL_VARIABLE):
        values["engine_url"] = environment[ENGINE_URL_VARIABLE]
    if "api_key" not in values and environment.get(API_KEY_VARIABLE):
        values["api_key"] = environment[API_KEY_VARIABLE]
    warning = f"redraft: {', '.join(wrong)}; the default is used." if wrong else ""
    return Settings(**values), warning
