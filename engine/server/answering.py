"""Sends one answer: as server-sent events or as one object, and notices a closed connection."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from engine.core import Cancelled, EngineError, Finished, Progress, TextDelta
from engine.server import answers
from engine.server.job import Item, Job
from engine.server.wire import MAX_BODY_BYTES, InvalidRequest, ParsedRequest

# A body over the limit is still read up to here, so that the client gets to the answer.
_DRAIN_BYTES = 4 * MAX_BODY_BYTES


class BodyTooLarge(InvalidRequest):
    """A request larger than 8 MiB."""

    def __init__(self) -> None:
        super().__init__(None, f"The request is larger than {MAX_BODY_BYTES // 2**20} MiB.")


async def read_body(request: Request) -> bytes:
    """The whole body.

    Raises:
        BodyTooLarge: it is larger than 8 MiB.
        ClientDisconnect: it never came.
    """
    body = bytearray()
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > _DRAIN_BYTES:
            break
        if size <= MAX_BODY_BYTES:
            body += part
    if size > MAX_BODY_BYTES:
        raise BodyTooLarge
    return bytes(body)


class JobResponse(Response):
    """Answers with the events of a job.

    An error before the first event has its own HTTP status; one after it ends the
    stream. Two things run at once: sending, and waiting for the client to go, so that
    a closed connection cancels also while nothing is sent.
    """

    def __init__(self, job: Job, parsed: ParsedRequest, cancel: Callable[[Job], None]) -> None:
        super().__init__()
        self._job = job
        self._parsed = parsed
        self._cancel = cancel
        self._head = answers.AnswerHead(
            f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), parsed.request.model
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; cancel the job if the client goes first."""
        watcher = asyncio.create_task(self._cancel_when_gone(receive))
        try:
            if self._parsed.stream:
                await self._stream(scope, receive, send)
            else:
                await self._whole(scope, receive, send)
        finally:
            watcher.cancel()
            self._cancel(self._job)

    async def _cancel_when_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._cancel(self._job)

    async def _whole(self, scope: Scope, receive: Receive, send: Send) -> None:
        texts: list[str] = []
        while True:
            for item in await self._job.take():
                if isinstance(item, Cancelled):
                    return
                if isinstance(item, EngineError):
                    await error_response(item)(scope, receive, send)
                    return
                if isinstance(item, Finished):
                    answer = answers.completion_object(self._head, "".join(texts), item)
                    await JSONResponse(answer)(scope, receive, send)
                    return
                if isinstance(item, TextDelta):
                    texts.append(item.text)

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        items = await self._job.take()
        if isinstance(items[0], Cancelled):
            return
        if isinstance(items[0], EngineError):
            await error_response(items[0])(scope, receive, send)
            return
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", b"text/event-stream; charset=utf-8"),
                    (b"cache-control", b"no-store"),
                ],
            }
        )
        encode = _Encoder(self._head, self._parsed)
        while True:
            body = b"".join(encode(item) for item in items)
            ended = isinstance(items[-1], Finished | EngineError | Cancelled)
            await send({"type": "http.response.body", "body": body, "more_body": not ended})
            if ended:
                return
            items = await self._job.take()


class _Encoder:
    """Turns the events of one answer into the bytes of its stream."""

    def __init__(self, head: answers.AnswerHead, parsed: ParsedRequest) -> None:
        self._head = head
        self._parsed = parsed
        self._first = True

    def __call__(self, item: Item) -> bytes:
        if isinstance(item, Progress):
            if not self._parsed.extras:
                return answers.sse_comment(item)
            return answers.sse(answers.progress_chunk(self._head, item))
        if isinstance(item, TextDelta):
            first, self._first = self._first, False
            return answers.sse(answers.text_chunk(self._head, item, first=first))
        if isinstance(item, Finished):
            return self._end(item)
        if isinstance(item, EngineError):
            return answers.sse(answers.error_object(item))
        return b""  # cancelled: nobody is there to read

    def _end(self, finished: Finished) -> bytes:
        parts = [answers.sse(answers.finish_chunk(self._head, finished.reason))]
        if self._parsed.include_usage:
            parts.append(answers.sse(answers.usage_chunk(self._head, finished.stats)))
        return b"".join([*parts, answers.DONE])


def error_response(error: EngineError) -> Response:
    """An error in our body, with the status of docs/engine-api.md."""
    status = 413 if isinstance(error, BodyTooLarge) else answers.HTTP_STATUS.get(error.code, 500)
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return Response(
        json.dumps(answers.error_object(error)),
        status_code=status,
        headers=headers,
        media_type="application/json",
    )
