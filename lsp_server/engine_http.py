"""How to reach an engine: addresses and HTTP clients."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from lsp_server.core import RewriteError

ENGINE_URL_VARIABLE = "REDRAFT_ENGINE_URL"
API_KEY_VARIABLE = "REDRAFT_API_KEY"

CONNECT_SECONDS = 5.0
ERROR_BYTES = 64 * 1024


class Endpoint(NamedTuple):
    """Where an engine listens.

    Attributes:
        url: `unix:/path`, or `http://host:port` or `https://...`, with or without `/v1`.
        token: the bearer token, or None.
    """

    url: str
    token: str | None = None


def open_http(endpoint: Endpoint) -> httpx.AsyncClient:
    """A client whose paths are relative to the server's root.

    There is no limit on reading, because loading a model takes minutes, and none on
    writing; a server that has gone is noticed by its closed connection.

    Raises:
        RewriteError: `invalid_engine_url`.
    """
    headers = {"Authorization": f"Bearer {endpoint.token}"} if endpoint.token else {}
    timeout = httpx.Timeout(None, connect=CONNECT_SECONDS)
    if endpoint.url.startswith("unix:"):
        return httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                uds=endpoint.url.removeprefix("unix:").removeprefix("//"), verify=False
            ),
            base_url="http://engine",
            headers=headers,
            timeout=timeout,
            trust_env=False,
        )
    base = _base_of(endpoint.url)
    # A proxy must not get what is meant for this machine.
    outside = not _is_loopback(urlsplit(base).hostname or "")
    try:
        return httpx.AsyncClient(
            base_url=base,
            headers=headers,
            timeout=timeout,
            trust_env=outside,
            verify=base.startswith("https:"),
        )
    except (httpx.InvalidURL, UnicodeError, ValueError, OSError):
        raise _invalid(endpoint.url) from None


def _base_of(url: str) -> str:
    try:
        parts = urlsplit(url)
        has_host = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        has_host = False
    if not has_host:
        raise _invalid(url)
    return url.rstrip("/").removesuffix("/v1")


def _invalid(url: str) -> RewriteError:
    return RewriteError(
        "invalid_engine_url",
        f"`{url[:200]}` is not an engine's address; "
        "write unix:/path/to/socket or http://host:port/v1.",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def ask_health(endpoint: Endpoint, seconds: float = 1.0) -> Mapping[str, Any] | None:
    """What `/healthz` says; None when nothing listens there or it is not an engine of ours.

    Raises:
        TimeoutError: something listens but does not answer in time.
    """
    return await _get(endpoint, "/healthz", seconds)


async def ask_models(endpoint: Endpoint, seconds: float = 1.0) -> Mapping[str, Any] | None:
    """The health of a server of another kind, as far as `/v1/models` tells; None without one.

    Raises:
        TimeoutError: something listens but does not answer in time.
    """
    answer = await _get(endpoint, "/v1/models", seconds)
    models = answer.get("data") if answer else None
    if not isinstance(models, list):
        return None
    first = models[0].get("id") if models and isinstance(models[0], dict) else None
    return {"status": "idle", "model": first}


async def _get(endpoint: Endpoint, path: str, seconds: float) -> Mapping[str, Any] | None:
    try:
        async with open_http(endpoint) as http:
            answer = await http.get(path, timeout=seconds)
            value = answer.json() if answer.status_code == 200 else None
    except httpx.TimeoutException:
        raise TimeoutError from None
    except (httpx.HTTPError, ValueError):
        return None
    return value if isinstance(value, dict) else None


async def ask_to_stop(endpoint: Endpoint, seconds: float = 1.0) -> bool:
    """Send `/redraft/stop`; whether the engine took it."""
    try:
        async with open_http(endpoint) as http:
            return (await http.post("/redraft/stop", timeout=seconds)).status_code == 200
    except httpx.HTTPError:
        return False
