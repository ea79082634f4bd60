"""`redraft/warm`: let the engine read the prompt of a rewrite that may come."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from lsp_server.core import RewriteError, RewriteRequest
from lsp_server.params import RewriteParams, read_place, read_rewrite
from lsp_server.prompts import build_prompt
from lsp_server.rewrite import check_request, request_body
from lsp_server.runner import request_of

if TYPE_CHECKING:
    from lsp_server.server import RedraftServer

logger = logging.getLogger(__name__)

# The source stands before the instruction in the prompt, so what is read of it is of
# use whatever the instruction will be.
_ANY_INSTRUCTION = "Rewrite"


def warm(server: RedraftServer, params: Any) -> asyncio.Future[dict[str, Any]]:
    """Warm the engine up; a newer call ends an older one, since only one place is looked at."""
    place = read_place(params)
    given: RewriteParams = read_rewrite(
        {**params, "instruction": _ANY_INSTRUCTION, "preset": None}, server.session.settings
    )
    request, _ = request_of(server.session, given._replace(place=place))
    check_request(request)
    if server.session.warming is not None:
        server.session.warming.cancel()
    task = server.spawn(_warm(server, request))
    server.session.warming = task
    # Its own future, so that a call that is overtaken is answered and not cancelled.
    outcome: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
    task.add_done_callback(partial(_answer, outcome))
    outcome.add_done_callback(lambda o: task.cancel() if o.cancelled() else None)
    return outcome


def _answer(outcome: asyncio.Future[dict[str, Any]], task: asyncio.Task[bool]) -> None:
    if not outcome.done():
        warmed = not task.cancelled() and task.exception() is None and task.result()
        outcome.set_result({"warmed": warmed})


async def _warm(server: RedraftServer, request: RewriteRequest) -> bool:
    body = {**request_body(request, build_prompt(request)), "max_tokens": 0}
    try:
        async with aclosing(server.session.engine.generate(body)) as events:
            async for _ in events:
                pass
    except RewriteError as error:
        # Nobody asked for anything yet, so nobody is told; the rewrite itself will say it.
        logger.info("warming failed: %s", error.code)
        return False
    return True
