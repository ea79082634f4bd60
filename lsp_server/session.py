"""What one client's session holds: its documents, its jobs, its engine."""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from urllib.parse import unquote, urlsplit

from lsp_server.capabilities import ClientCapabilities, Settings
from lsp_server.core import RewriteError, Span
from lsp_server.engine_client import Endpoint, EngineClient
from lsp_server.jobs import JobTable
from lsp_server.languages import language_of
from lsp_server.params import Place
from lsp_server.spans import span_at, span_of_range
from lsp_server.text.document import MAX_DOCUMENT_CHARS, Document

MAX_DOCUMENTS = 1_000


class Documents:
    """The open documents, bounded: beyond `MAX_DOCUMENTS` the least recently used goes."""

    def __init__(self) -> None:
        self._documents: OrderedDict[str, Document] = OrderedDict()

    def __len__(self) -> int:
        return len(self._documents)

    def get(self, uri: str) -> Document | None:
        """The mirror of an open document."""
        return self._documents.get(uri)

    def open(self, document: Document) -> Document | None:
        """Hold a document; return the one that had to go for it, if any."""
        self._documents[document.uri] = document
        self._documents.move_to_end(document.uri)
        if len(self._documents) <= MAX_DOCUMENTS:
            return None
        return self._documents.popitem(last=False)[1]

    def use(self, uri: str) -> Document | None:
        """The document, now the most recently used."""
        document = self._documents.get(uri)
        if document is not None:
            self._documents.move_to_end(uri)
        return document

    def close(self, uri: str) -> None:
        """Let go of a document; an unknown one is no error."""
        self._documents.pop(uri, None)


class Session:
    """State only; what happens to it is in `runner`, `apply` and `notifications`."""

    def __init__(self) -> None:
        self.capabilities = ClientCapabilities()
        self.settings = Settings()
        self.folders: tuple[str, ...] = ()
        self.documents = Documents()
        self.jobs = JobTable()
        self.warming: asyncio.Task[bool] | None = None
        self.told_notice = ""
        # Random, so that no other program can name it.
        self._window = secrets.token_hex(16)
        self._engine: EngineClient | None = None

    @property
    def engine(self) -> EngineClient:
        """The engine's client, made when first needed."""
        if self._engine is None:
            url = self.settings.engine_url
            endpoint = Endpoint(url, self.settings.api_key) if url else None
            self._engine = EngineClient(endpoint, self._window)
        return self._engine

    async def close_engine(self) -> None:
        """Close the engine's client, where there is one."""
        if self._engine is not None:
            await self._engine.aclose()


class StaleVersionError(Exception):
    """The client speaks of another version of the document than the current one."""


def document_at(session: Session, place: Place) -> Document:
    """The document that a request is about, checked: open, right version, not too large."""
    document = session.documents.use(place.uri)
    if document is None:
        raise RewriteError(
            "not_open", "This document is not open in the editor, as far as redraft knows; open it."
        )
    if place.version is not None and place.version != document.version:
        raise StaleVersionError
    if document.too_large:
        raise RewriteError(
            "too_large",
            f"This file has more than {MAX_DOCUMENT_CHARS:,} characters, which is the most that "
            "redraft works on; move the code into a smaller file.",
        )
    return document


def language_in(document: Document) -> str:
    """The document's language: by its language id, else by its file name."""
    return language_of(document.language_id) or language_of(unquote(urlsplit(document.uri).path))


def span_in(session: Session, document: Document, place: Place) -> Span:
    """The span to rewrite: the range if there is one, else what is around the cursor."""
    encoding = session.capabilities.encoding
    start = document.lines.offset(place.start, encoding)
    end = document.lines.offset(place.end, encoding)
    if start < end:
        return span_of_range(document.text, start, end)
    language = language_in(document)
    if not language:
        raise RewriteError(
            "no_span",
            f"redraft cannot find functions in {document.language_id or 'unknown'} files; "
            "select the lines to rewrite.",
        )
    span = span_at(document.text, language, start)
    if span is None:
        raise RewriteError(
            "no_span",
            f"There is no function or class at line {place.start.line + 1}; select the lines to "
            "rewrite, or put the cursor into a function.",
        )
    return span
