"""Talks to an engine: our own, started on demand, or any OpenAI-compatible server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import httpx

from lsp_server import sse
from lsp_server.core import Progress, RewriteError
from lsp_server.engine_answer import (
    AnswerReader,
    EngineFinished,
    EngineProgress,
    EngineText,
    error_of,
)
from lsp_server.engine_files import find_record
from lsp_server.engine_http import ERROR_BYTES, Endpoint, ask_health, ask_models, open_http
from lsp_server.engine_process import ensure_engine

__all__ = ["Endpoint", "EngineClient", "EngineFinished", "EngineProgress", "EngineText"]

MAX_BODY_BYTES = 8 * 1024 * 1024

EngineEvent = EngineProgress | EngineText | EngineFinished

_DIED = (
    "The engine stopped in the middle of the rewrite; nothing was changed. "
    "Run it again: a new engine will start."
)


class _NotThere(Exception):
    """Nothing has been answered yet, and nothing listens any more."""


class EngineClient:
    """One client for any number of requests, also at the same time.

    Args:
        endpoint: the server to talk to; None is our own engine.
        window: an id of the editor window, told to our own engine only, which drafts from
            the window's earlier rewrites; None tells nothing.
    """

    def __init__(self, endpoint: Endpoint | None = None, window: str | None = None) -> None:
        self._given = endpoint
        self._window = window if endpoint is None else None
        self._found: Endpoint | None = None
        self._shared: httpx.AsyncClient | None = None

    async def generate(self, body: Mapping[str, Any]) -> AsyncGenerator[EngineEvent, None]:
        """Send a chat completion request and yield what comes, `EngineFinished` last.

        Closing the iterator closes the connection, which cancels the engine's work.

        Raises:
            RewriteError: with the engine's own code, or `engine_died`,
                `engine_unreachable`, `engine_missing`, `engine_failed`, `bad_answer`.
        """
        if self._given is not None:
            endpoint = self._given
            content = _encode(_without_workspace(body))
            try:
                async with contextlib.aclosing(self._answer(endpoint, content)) as events:
                    async for event in events:
                        yield event
            except _NotThere:
                raise RewriteError(
                    "engine_unreachable",
                    f"Nothing answers at {endpoint.url}; nothing was changed. "
                    "Check that the server runs and that the address is right.",
                ) from None
            return
        content = _encode(body if self._window is None else _with_window(body, self._window))
        if len(content) > MAX_BODY_BYTES:
            raise RewriteError(
                "too_large", "This is more text than the engine takes; rewrite less at a time."
            )
        # The second time for an engine that has stopped, idle, since it was found.
        for last_try in (False, True):
            endpoint = self._found
            if endpoint is None:
                async with contextlib.aclosing(_started()) as steps:
                    async for step in steps:
                        if isinstance(step, Endpoint):
                            endpoint = self._found = step
                        else:
                            yield step
            assert endpoint is not None
            try:
                async with contextlib.aclosing(self._answer(endpoint, content)) as events:
                    async for event in events:
                        yield event
                return
            except _NotThere:
                if self._found == endpoint:
                    self._found = None
                if last_try:
                    raise RewriteError("engine_died", _DIED) from None

    async def _answer(
        self, endpoint: Endpoint, content: bytes
    ) -> AsyncGenerator[EngineEvent, None]:
        reader = AnswerReader()
        answered = False
        try:
            async with (
                self._client(endpoint) as http,
                http.stream(
                    "POST",
                    "/v1/chat/completions",
                    content=content,
                    headers={"Content-Type": "application/json", "Accept": "text/event-stream"},
                ) as response,
            ):
                answered = True
                if response.status_code != 200:
                    await self._raise_error(response)
                state = sse.SseState()
                async for part in response.aiter_bytes():
                    state, datas = sse.feed(state, part)
                    for data in datas:
                        for event in reader.read(data):
                            yield event
                    if reader.done:
                        break
                for data in [] if reader.done else sse.finish(state):
                    for event in reader.read(data):
                        yield event
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise _NotThere from None
        except httpx.TransportError:
            if self._given is None and not answered:
                # An engine that is just ending still takes connections for a moment; it
                # has done nothing with this request, so another engine may.
                raise _NotThere from None
            raise self._died() from None
        except sse.SseError:
            raise RewriteError(
                "bad_answer", "The server's answer has an event without an end."
            ) from None
        except httpx.InvalidURL:
            raise RewriteError(
                "invalid_engine_url", f"`{endpoint.url[:200]}` is no address."
            ) from None
        # Some servers leave `[DONE]` out; ours ends without it only after a fault.
        if not reader.done and (self._given is None or reader.reason is None):
            raise self._died()
        yield reader.finished()

    async def _raise_error(self, response: httpx.Response) -> None:
        """Raise what an error's body says; `_NotThere` for our engine on its way out."""
        raw = bytearray()
        async for part in response.aiter_bytes():
            raw += part
            if len(raw) > ERROR_BYTES:
                break
        try:
            value = json.loads(raw[:ERROR_BYTES])
        except (ValueError, RecursionError):
            value = None
        error = error_of(value, response.status_code)
        if self._given is None and error.code in ("engine_stopping", "unauthorized"):
            raise _NotThere
        raise error

    def _died(self) -> RewriteError:
        if self._given is None:
            return RewriteError("engine_died", _DIED)
        return RewriteError(
            "engine_died",
            f"The server at {self._given.url} closed the connection in the middle of the "
            "rewrite; nothing was changed. Run it again.",
        )

    @contextlib.asynccontextmanager
    async def _client(self, endpoint: Endpoint) -> AsyncIterator[httpx.AsyncClient]:
        """One client for a given server, whose connections are kept; else one a request."""
        if self._given is None:
            async with open_http(endpoint) as http:
                yield http
            return
        if self._shared is None:
            self._shared = open_http(endpoint)
        yield self._shared

    async def health(self) -> Mapping[str, Any] | None:
        """What `/healthz` says (docs/engine-api.md), or None; never starts an engine."""
        endpoint = self._given
        if endpoint is None:
            record = find_record()
            if record is None:
                return None
            endpoint = record.endpoint
        try:
            health = await ask_health(endpoint)
            if health is None and self._given is not None:
                health = await ask_models(endpoint)
        except TimeoutError:
            return None
        return health

    async def aclose(self) -> None:
        """Close the connections that are kept; the engine runs on."""
        shared, self._shared = self._shared, None
        if shared is not None:
            await shared.aclose()


def _without_workspace(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The request without the paths of the user's folders, which no other server is told."""
    ours = body.get("redraft")
    if not isinstance(ours, Mapping) or "workspace" not in ours:
        return body
    return {**body, "redraft": {key: ours[key] for key in ours if key != "workspace"}}


def _with_window(body: Mapping[str, Any], window: str) -> Mapping[str, Any]:
    return {**body, "redraft": {**body.get("redraft", {}), "window": window}}


def _encode(body: Mapping[str, Any]) -> bytes:
    """The request as JSON, with what every server needs to stream and to count."""
    full = {"stream_options": {"include_usage": True}, **body, "stream": True}
    if full.get("continue_final_message"):
        # vLLM refuses the one without the other; ours ignores it.
        full.setdefault("add_generation_prompt", False)
    return json.dumps(full).encode("ascii")


async def _started() -> AsyncGenerator[EngineProgress | Endpoint, None]:
    """Start our engine if need be: yields what is going on, and at the end where it is."""
    steps: asyncio.Queue[Progress | None] = asyncio.Queue()
    task = asyncio.create_task(ensure_engine(steps.put_nowait))
    task.add_done_callback(lambda _: steps.put_nowait(None))
    try:
        while (step := await steps.get()) is not None:
            yield EngineProgress(step.phase, step.fraction, step.detail)
        yield await task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, RewriteError):
            await task
