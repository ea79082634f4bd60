"""`redraft/status`: the engine and the jobs that have not ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

HEALTH_SECONDS = 2.0


def status(server: RedraftServer, params: Any) -> Coroutine[Any, Any, dict[str, Any]]:
    """Answer without starting an engine."""
    return _status(server)


async def _status(server: RedraftServer) -> dict[str, Any]:
    try:
        health = await asyncio.wait_for(server.session.engine.health(), HEALTH_SECONDS)
    except Exception:
        health = None
    engine: dict[str, Any] = {"state": "stopped", "model": None}
    if health is not None:
        engine = {**health, "state": health.get("status", "unknown")}
    return {
        "engine": engine,
        "jobs": [
            {
                "jobId": job.id,
                "uri": job.uri,
                "state": job.state.value,
                "tokens": job.stats.get("tokens"),
                "tokensPerSecond": job.stats.get("tokens_per_second"),
            }
            for job in server.session.jobs
        ],
    }
