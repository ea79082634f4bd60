"""`redraft/rewrite`: begin a rewrite, answer when it is complete."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from lsp_server.params import read_rewrite
from lsp_server.runner import start_job

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer


def rewrite(server: RedraftServer, params: Any) -> asyncio.Future[dict[str, Any]]:
    """Begin at once, with the text as it is now; the answer comes later."""
    return start_job(server, read_rewrite(params, server.session.settings)).outcome
