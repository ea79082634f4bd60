"""The routes of docs/engine-api.md. Nothing slow happens on the event loop."""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.core import EngineError
from engine.server.answering import JobResponse, error_response, read_body
from engine.server.answers import progress_object
from engine.server.logs import log_failure
from engine.server.metrics import Metrics
from engine.server.wire import InvalidRequest, parse_body
from engine.server.worker import Worker

# More connections than this at once is a fault of some client.
MAX_OPEN_REQUESTS = 128


@dataclass(frozen=True, slots=True)
class Service:
    """What the routes need.

    Attributes:
        worker: generates.
        metrics: counts.
        default_model: the model of requests that name none.
        known_models: names for `/v1/models`.
        stop: asks the process to end.
        token: the bearer token, or None where the socket's mode guards the door.
    """

    worker: Worker
    metrics: Metrics
    default_model: str
    known_models: Sequence[str]
    stop: Callable[[], None]
    token: str | None = None


def engine_version() -> str:
    """The installed version of redraft."""
    try:
        return version("redraft")
    except PackageNotFoundError:
        return "unknown"


def make_app(service: Service) -> ASGIApp:
    """The ASGI application; every error it answers with has our body."""
    routes = _Routes(service)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", routes.completions, methods=["POST"]),
            Route("/v1/models", routes.models),
            Route("/healthz", routes.health),
            Route("/metrics", routes.metrics),
            Route("/redraft/stop", routes.stop, methods=["POST"]),
        ],
        exception_handlers={
            EngineError: _engine_error,
            HTTPException: _http_error,
            Exception: _fault,
        },
    )
    return _Door(app, service.token)


async def _engine_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, EngineError)
    return error_response(error)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        message = f"{request.method} is not possible here; see the engine's API page."
    else:
        message = "There is nothing at this path; see the engine's API page."
    response = error_response(InvalidRequest(None, message))
    response.status_code = error.status_code
    response.headers.update(error.headers or {})
    return response


async def _fault(_request: Request, _error: Exception) -> Response:
    return error_response(EngineError("internal", "The engine failed; its log has the details."))


class _Door:
    """Checks the token, bounds what is open, and keeps unforeseen errors in the house."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._expected = None if token is None else f"bearer {token}".encode("latin-1")
        self._open = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await error_response(refusal)(scope, receive, send)
            return
        self._open += 1
        try:
            await self._app(scope, receive, send)
        except ClientDisconnect:
            pass
        except Exception as error:  # already answered; here only so that our log gets it
            log_failure("answering", error)
        finally:
            self._open -= 1

    def _refusal(self, scope: Scope) -> EngineError | None:
        if self._expected is not None:
            given = dict(scope["headers"]).get(b"authorization", b"")
            scheme, _, rest = given.partition(b" ")
            if not hmac.compare_digest(scheme.lower() + b" " + rest.strip(), self._expected):
                return EngineError(
                    "unauthorized",
                    "The engine's bearer token is missing or wrong; engine.json holds it.",
                )
        if self._open >= MAX_OPEN_REQUESTS:
            return EngineError("engine_busy", "Too many requests are open; try again in a moment.")
        return None


class _Routes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def completions(self, request: Request) -> Response:
        body = await read_body(request)
        # Parsing megabytes of JSON would hold up every other connection.
        parsed = await asyncio.to_thread(parse_body, body, self._service.default_model)
        worker = self._service.worker
        return JobResponse(worker.submit(parsed.request), parsed, worker.cancel)

    async def models(self, _request: Request) -> Response:
        loaded = self._service.worker.state().model
        names = [loaded] if loaded else []
        names += [name for name in self._service.known_models if name != loaded]
        data = [
            {"id": name, "object": "model", "created": 0, "owned_by": "redraft"} for name in names
        ]
        return JSONResponse({"object": "list", "data": data})

    async def health(self, _request: Request) -> Response:
        state = self._service.worker.state()
        status = "stopping" if state.stopping else "busy" if state.active else "idle"
        return JSONResponse(
            {
                "status": status,
                "version": engine_version(),
                "pid": os.getpid(),
                "model": state.model,
                "running": state.running._asdict() if state.running else None,
                "active": state.active,
                "queued": state.queued,
                "activity": progress_object(state.activity) if state.activity else None,
            }
        )

    async def metrics(self, _request: Request) -> Response:
        state = self._service.worker.state()
        text = self._service.metrics.text(
            active=state.active,
            queued=state.queued,
            kept_sequences=state.kept_sequences,
            kept_bytes=state.kept_bytes,
        )
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def stop(self, _request: Request) -> Response:
        self._service.stop()
        return JSONResponse({"status": "stopping"})
