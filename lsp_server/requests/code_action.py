"""`textDocument/codeAction`: the presets, and a fix for each diagnostic.

An action carries a command, never a resolve step: editors resolve while the mouse
moves over the menu, and that would run the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from lsp_server.core import RewriteError, Span
from lsp_server.params import Place
from lsp_server.presets import fix_instruction, preset_title, presets_for
from lsp_server.requests.commands import REWRITE
from lsp_server.running import short
from lsp_server.session import StaleVersionError, document_at, language_in, span_in
from lsp_server.text.document import Document
from lsp_server.text.positions import LinePosition

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

KIND = "refactor.rewrite.redraft"
MAX_FIXES = 3
MAX_DIAGNOSTIC_CHARS = 500

Action = types.CodeAction | types.Command


def register(server: RedraftServer) -> None:
    """Offer code actions of our kinds."""
    options = types.CodeActionOptions(code_action_kinds=[KIND, types.CodeActionKind.QuickFix])
    server.feature(types.TEXT_DOCUMENT_CODE_ACTION, options)(
        lambda params: code_actions(server, params)
    )


def code_actions(server: RedraftServer, params: types.CodeActionParams) -> list[Action]:
    """The actions for a selection or cursor; none where there is nothing to rewrite."""
    context = params.context
    if context.trigger_kind == types.CodeActionTriggerKind.Automatic:
        return []
    place = Place(
        params.text_document.uri, None, _position(params.range.start), _position(params.range.end)
    )
    actions: list[types.CodeAction] = []
    try:
        document = document_at(server.session, place)
        if _wanted(types.CodeActionKind.QuickFix, context.only):
            actions += _fixes(server, document, place, context.diagnostics)
        if _wanted(KIND, context.only) and _span(server, document, place) is not None:
            actions += _presets(server, document, place, context.only)
    except (RewriteError, StaleVersionError):
        return []
    if server.session.capabilities.action_literals:
        return list(actions)
    return [action.command for action in actions if action.command is not None]


def _span(server: RedraftServer, document: Document, place: Place) -> Span | None:
    try:
        return span_in(server.session, document, place)
    except RewriteError:
        return None


def _presets(
    server: RedraftServer,
    document: Document,
    place: Place,
    only: Sequence[types.CodeActionKind | str] | None,
) -> list[types.CodeAction]:
    language = language_in(document)
    return [
        _action(
            server,
            preset_title(preset, language),
            f"{KIND}.{preset.id}",
            {**_where(document, place), "preset": preset.id},
        )
        for preset in presets_for(language)
        if _wanted(f"{KIND}.{preset.id}", only)
    ]


def _fixes(
    server: RedraftServer,
    document: Document,
    place: Place,
    diagnostics: Sequence[types.Diagnostic],
) -> list[types.CodeAction]:
    actions = []
    for diagnostic in diagnostics[:MAX_FIXES]:
        start = _position(diagnostic.range.start)
        # Without a selection the function around the problem is rewritten, not the one
        # around the cursor: the two can differ.
        target = place if place.start != place.end else place._replace(start=start, end=start)
        if _span(server, document, target) is None:
            continue
        line = min(start.line, document.lines.line_count - 1)
        code = document.text[document.lines.line_start(line) : document.lines.line_end(line)]
        message = diagnostic.message[:MAX_DIAGNOSTIC_CHARS]
        action = _action(
            server,
            f"Fix: {short(message)}",
            types.CodeActionKind.QuickFix,
            {
                **_where(document, target),
                "instruction": fix_instruction(message, code[:MAX_DIAGNOSTIC_CHARS]),
            },
        )
        action.diagnostics = [diagnostic]
        actions.append(action)
    return actions


def _action(
    server: RedraftServer, title: str, kind: types.CodeActionKind | str, argument: dict[str, Any]
) -> types.CodeAction:
    tags = [types.CodeActionTag.LlmGenerated] if server.session.capabilities.llm_tag else None
    return types.CodeAction(
        title=title,
        kind=kind,
        command=types.Command(title=title, command=REWRITE, arguments=[argument]),
        tags=tags,
    )


def _where(document: Document, place: Place) -> dict[str, Any]:
    """The place as `redraft.rewrite` takes it, bound to the version that the menu was for."""
    start = {"line": place.start.line, "character": place.start.character}
    where: dict[str, Any] = {"textDocument": {"uri": document.uri, "version": document.version}}
    if place.start == place.end:
        return {**where, "position": start}
    end = {"line": place.end.line, "character": place.end.character}
    return {**where, "range": {"start": start, "end": end}}


def _wanted(kind: str, only: Sequence[types.CodeActionKind | str] | None) -> bool:
    """Whether a kind is asked for. Asking for a kind asks for all kinds below it.

    Our own root also counts as wanted when only some of what is below it is.
    """
    if not only:
        return True
    text = str(getattr(kind, "value", kind))
    for asked in only:
        wanted = str(getattr(asked, "value", asked))
        if not wanted or text == wanted or text.startswith(f"{wanted}."):
            return True
        if text == KIND and wanted.startswith(f"{KIND}."):
            return True
    return False


def _position(position: types.Position) -> LinePosition:
    return LinePosition(position.line, position.character)
