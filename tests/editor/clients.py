"""Editors as data: what each declares, and what it does with a versioned edit.

Sources: VS Code as vscode-languageclient 11 declares it; Neovim 0.11 as read and run
(it declares no documentChanges, drops an edit for an older version and reports it as
applied); Helix at 079a789 and eglot at 52dddcb as read (documentChanges, another version
is an error, no tag for edits by a model); of Zed only its encoding is known, so it stands
here with the least; "plain" is a client that knows the least that still lets it apply an
edit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tests.editor.text_model import Encoding


@dataclass(frozen=True)
class Client:
    name: str
    version: str
    encoding: Encoding
    capabilities: dict[str, Any]
    # equality: another version is refused. older_is_dropped: Neovim's way.
    version_check: Literal["equality", "older_is_dropped", "none"]
    # Neovim sends didChange after a pause, so after its answer to applyEdit.
    change_after_answer: bool = False

    def with_encoding(self, encoding: Encoding) -> Client:
        general = {"positionEncodings": [encoding]}
        capabilities = {**self.capabilities, "general": general}
        return replace(self, encoding=encoding, capabilities=capabilities)

    def without_hunks(self) -> Client:
        kept = {k: v for k, v in self.capabilities.items() if k != "experimental"}
        return replace(self, capabilities=kept)


_LITERALS = {"codeActionKind": {"valueSet": ["", "quickfix", "refactor", "refactor.rewrite"]}}
_HUNKS = {"redraft": {"hunks": True}}

VS_CODE = Client(
    name="Visual Studio Code",
    version="1.140.0",
    encoding="utf-16",
    version_check="equality",
    capabilities={
        "general": {"positionEncodings": ["utf-16"]},
        "workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}},
        "window": {"workDoneProgress": True},
        "textDocument": {
            "codeAction": {
                "codeActionLiteralSupport": _LITERALS,
                "tagSupport": {"valueSet": [1]},
            }
        },
        "experimental": _HUNKS,
    },
)

NEOVIM = Client(
    name="Neovim",
    version="0.11.4",
    encoding="utf-8",
    version_check="older_is_dropped",
    change_after_answer=True,
    capabilities={
        "general": {"positionEncodings": ["utf-8", "utf-16", "utf-32"]},
        "workspace": {"applyEdit": True, "workspaceEdit": {"resourceOperations": ["rename"]}},
        "window": {"workDoneProgress": True},
        "textDocument": {"codeAction": {"codeActionLiteralSupport": _LITERALS}},
        "experimental": _HUNKS,
    },
)

PLAIN = Client(
    name="plain",
    version="1",
    encoding="utf-16",
    version_check="none",
    capabilities={"workspace": {"applyEdit": True}},
)

HELIX = Client(
    name="helix",
    version="079a789",
    encoding="utf-8",
    version_check="equality",
    capabilities={
        "general": {"positionEncodings": ["utf-8", "utf-32", "utf-16"]},
        "workspace": {
            "applyEdit": True,
            "workspaceEdit": {"documentChanges": True, "normalizesLineEndings": False},
        },
        "window": {"workDoneProgress": True},
        "textDocument": {"codeAction": {"codeActionLiteralSupport": _LITERALS}},
    },
)

EGLOT = Client(
    name="Eglot",
    version="52dddcb",
    encoding="utf-32",
    version_check="equality",
    capabilities={
        "general": {"positionEncodings": ["utf-32", "utf-8", "utf-16"]},
        "workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}},
        "window": {"workDoneProgress": True},
        "textDocument": {"codeAction": {"codeActionLiteralSupport": _LITERALS}},
    },
)

ZED = Client(
    name="Zed",
    version="0",
    encoding="utf-16",
    version_check="none",
    capabilities={
        "general": {"positionEncodings": ["utf-16"]},
        "workspace": {"applyEdit": True},
        "window": {"workDoneProgress": True},
        "textDocument": {"codeAction": {"codeActionLiteralSupport": _LITERALS}},
    },
)

ALL = (VS_CODE, NEOVIM, HELIX, ZED, EGLOT, PLAIN)
