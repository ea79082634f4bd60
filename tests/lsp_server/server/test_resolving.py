"""Capabilities, settings, presets and progress: data resolved once, and words for people."""

from __future__ import annotations

from typing import Any

import pytest
from lsprotocol import types
from pygls.protocol import default_converter

from lsp_server.capabilities import (
    ClientCapabilities,
    Settings,
    read_settings,
    resolve_capabilities,
    workspace_folders,
)
from lsp_server.core import Progress
from lsp_server.presets import PRESETS, fix_instruction, preset_instruction, presets_for
from lsp_server.progress import describe
from lsp_server.running import TITLE_CHARS, short
from tests.editor.clients import NEOVIM, PLAIN, VS_CODE, Client

LANGUAGES = (
    *("python", "javascript", "javascriptreact", "typescript", "typescriptreact", "go", "rust"),
    *("c", "cpp", "java", "csharp", "ruby", "php", "kotlin", "lua"),
)


def _resolve(client: Client) -> ClientCapabilities:
    return resolve_capabilities(
        types.InitializeParams(
            capabilities=default_converter().structure(
                client.capabilities, types.ClientCapabilities
            ),
            client_info=types.ClientInfo(name=client.name, version=client.version),
        )
    )


def test_vs_code_is_resolved_to_what_it_declares() -> None:
    assert _resolve(VS_CODE) == ClientCapabilities(
        encoding="utf-16",
        document_changes=True,
        apply_edit=True,
        progress=True,
        hunks=True,
        action_literals=True,
        llm_tag=True,
        name="Visual Studio Code",
        version="1.140.0",
    )


def test_neovim_gets_document_changes_without_declaring_them() -> None:
    resolved = _resolve(NEOVIM)
    assert (resolved.encoding, resolved.document_changes, resolved.llm_tag) == (
        "utf-8",
        True,
        False,
    )


def test_a_client_that_says_nothing_can_do_nothing() -> None:
    assert (
        resolve_capabilities(types.InitializeParams(capabilities=types.ClientCapabilities()))
        == ClientCapabilities()
    )
    assert _resolve(PLAIN).hunks is False


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["utf-32", "utf-8"], "utf-32"),
        (["utf-7", "utf-8"], "utf-8"),
        (["utf-7"], "utf-16"),
        ([], "utf-16"),
    ],
)
def test_the_first_known_encoding_of_the_client_is_taken(offered: list[str], chosen: str) -> None:
    general = types.GeneralClientCapabilities(position_encodings=offered)  # type: ignore[arg-type]
    params = types.InitializeParams(capabilities=types.ClientCapabilities(general=general))
    assert resolve_capabilities(params).encoding == chosen


@pytest.mark.parametrize("experimental", [None, 1, [], {"redraft": 1}, {"redraft": {"hunks": 1}}])
def test_only_a_plain_true_turns_hunks_on(experimental: Any) -> None:
    params = types.InitializeParams(
        capabilities=types.ClientCapabilities(experimental=experimental)
    )
    assert resolve_capabilities(params).hunks is False


@pytest.mark.parametrize(
    ("given", "folders"),
    [
        ({}, ()),
        ({"root_uri": "file:///r"}, ("/r",)),
        ({"root_uri": "file:///r", "workspace_folders": []}, ("/r",)),
        (
            {
                "root_uri": "file:///r",
                "workspace_folders": [
                    types.WorkspaceFolder("file:///a%20b", "a"),
                    types.WorkspaceFolder("vscode-remote://host/c", "c"),
                    types.WorkspaceFolder("file:///d", "d"),
                ],
            },
            ("/a b", "/d"),
        ),
    ],
)
def test_the_workspace_is_the_open_folders_of_this_machine(given, folders) -> None:
    params = types.InitializeParams(capabilities=types.ClientCapabilities(), **given)
    assert workspace_folders(params) == folders


def test_options_win_over_the_environment() -> None:
    environment = {"REDRAFT_ENGINE_URL": "unix:/e", "REDRAFT_API_KEY": "k"}
    settings, warning = read_settings({"engineUrl": "unix:/o", "draft": False}, environment)
    assert settings == Settings(draft=False, engine_url="unix:/o", api_key="k")
    assert warning == ""
    assert read_settings(None, environment)[0] == Settings(engine_url="unix:/e", api_key="k")
    assert read_settings({"model": ""}, {}) == (Settings(), "")
    assert read_settings({"workspace": False}, {}) == (Settings(workspace=False), "")


def test_a_wrong_option_is_named_and_never_shown() -> None:
    settings, warning = read_settings({"apiKey": ["secret"], "draft": 1}, {})
    assert settings == Settings()
    assert "`draft` must be true or false" in warning
    assert "secret" not in warning
    assert read_settings([1], {})[1].startswith("redraft: `initializationOptions` must be")


def test_a_key_is_not_shown_by_accident() -> None:
    assert "hidden" not in repr(Settings(api_key="hidden"))


@pytest.mark.parametrize("language", ["", *LANGUAGES])
def test_every_language_has_three_to_six_presets_with_an_instruction(language: str) -> None:
    presets = presets_for(language)
    assert 3 <= len(presets) <= 6
    for preset in presets:
        instruction = preset_instruction(preset.id, language) or ""
        assert instruction.endswith(".")
        assert 40 < len(instruction) < 400


def test_type_hints_are_offered_only_where_they_make_sense() -> None:
    assert [x for x in LANGUAGES if "types" in {p.id for p in presets_for(x)}] == [
        "python",
        "typescript",
        "typescriptreact",
        "php",
    ]


def test_the_docstring_of_python_goes_into_the_body() -> None:
    assert "inside the body" in (preset_instruction("docs", "python") or "")
    assert "above" not in (preset_instruction("docs", "python") or "")
    assert preset_instruction("nothing", "python") is None
    assert len({p.id for p in PRESETS}) == len(PRESETS)


def test_a_fix_names_the_line_and_the_problem_in_one_line() -> None:
    assert fix_instruction("`x` is\n  unused", "    x = 1") == (
        "Fix this problem in the line `x = 1`: `x` is unused"
    )
    assert fix_instruction("bad", "") == "Fix this problem: bad"


@pytest.mark.parametrize(
    ("progress", "words"),
    [
        (Progress("starting"), "starting the engine"),
        (Progress("queued"), "waiting for the engine"),
        (Progress("fetching", 0.37, "412 of 1117 MB, 18 MB/s"), "fetching 412 of 1117 MB, 18 MB/s"),
        (Progress("converting", 0.5), "converting the model 50%"),
        (Progress("loading"), "loading the model"),
        (Progress("prefill", 0.456), "reading 46%"),
        (Progress("prefill", 7.0), "reading 100%"),
        (Progress("writing", 0.3, "23 tokens/s"), "writing, 23 tokens/s"),
        (Progress("writing", 0.3), "writing"),
        (Progress("something"), "something"),
    ],
)
def test_progress_in_words(progress: Progress, words: str) -> None:
    assert describe(progress) == words


def test_a_title_is_one_short_line() -> None:
    assert short(" rename\n a  to b ") == "rename a to b"
    assert len(short("x" * 500)) == TITLE_CHARS
