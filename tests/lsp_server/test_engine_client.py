"""The client, against real engine processes and against servers of other kinds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

import httpx
import pytest

from lsp_server import engine_process
from lsp_server.core import RewriteError
from lsp_server.engine_client import (
    Endpoint,
    EngineClient,
    EngineFinished,
    EngineProgress,
    EngineText,
)
from tests.engine.server.conftest import runtime, shared_engine  # noqa: F401
from tests.engine.server.process import (
    body,
    engine_of_our_own,
    metric,
    running_engine,
    wait_until,
)
from tests.lsp_server.openai_server import SSE_HEAD, data, raw_server, text_chunk

DIED = (
    "The engine stopped in the middle of the rewrite; nothing was changed. "
    "Run it again: a new engine will start."
)


@pytest.fixture
def on_demand(runtime, monkeypatch):  # noqa: F811
    with engine_of_our_own(runtime, monkeypatch) as folder:
        yield folder


async def events_of(client: EngineClient, request) -> list:
    async with contextlib.aclosing(client.generate(request)) as events:
        return [event async for event in events]


async def error_of(client: EngineClient, request=None) -> RewriteError:
    with pytest.raises(RewriteError) as caught:
        await events_of(client, request or body(["text", "a"]))
    return caught.value


@contextlib.asynccontextmanager
async def client_of(url: str, token: str | None = None):
    async with contextlib.aclosing(EngineClient(Endpoint(url, token))) as client:
        yield client


@pytest.fixture
async def engine_client(shared_engine):  # noqa: F811
    async with client_of(shared_engine.record()["url"]) as client:
        yield client


async def test_no_other_server_is_told_the_folders_of_the_workspace():
    ours = {"draft": True, "workspace": {"folders": ["/folder"], "suffixes": ["py"]}}
    request = {"model": "m", "messages": [], "redraft": ours}
    async with raw_server(SSE_HEAD, data("[DONE]")) as server, client_of(server.url) as client:
        await error_of(client, request)
        assert server.requests[0][2]["redraft"] == {"draft": True}
    assert "workspace" in ours


async def test_an_answer_comes_as_progress_text_and_one_end(engine_client):
    request = body(["progress", "prefill", 0.5], ["text", "dé"], ["copy", "f\n", 4])
    *events, finished = await events_of(engine_client, request)
    assert events == [
        EngineProgress("prefill", 0.5, "detail of prefill"),
        EngineText("dé"),
        EngineText("f\n", ((0, 4, 2),)),
    ]
    assert isinstance(finished, EngineFinished)
    assert finished.reason == "stop"
    assert finished.stats["accepted_by_origin"] == {"source": 3}
    assert finished.stats["runner"] == "fake"


async def test_an_errors_code_and_sentence_reach_the_caller(engine_client):
    before = await error_of(engine_client, body(["error", "model_not_found"]))
    assert (before.code, before.message) == (
        "model_not_found",
        "The fake engine was told to say model_not_found.",
    )
    after = await error_of(engine_client, body(["text", "a"], ["error", "out_of_memory"]))
    assert after.code == "out_of_memory"


async def test_closing_the_iterator_cancels_the_engine(engine_client, shared_engine):  # noqa: F811
    name = 'redraft_requests_total{outcome="cancelled"}'
    with shared_engine.client() as http:
        before = metric(http, name)
        events = engine_client.generate(body(["text", "a"], ["hold"]))
        assert await anext(events) == EngineText("a")
        await events.aclose()
        wait_until(lambda: metric(http, name) == before + 1, "the cancel")


async def test_cancelling_the_task_cancels_the_engine(engine_client, shared_engine):  # noqa: F811
    name = 'redraft_requests_total{outcome="cancelled"}'
    with shared_engine.client() as http:
        before = metric(http, name)
        began = asyncio.Event()

        async def use():
            async with contextlib.aclosing(
                engine_client.generate(body(["text", "a"], ["hold"]))
            ) as events:
                async for _ in events:
                    began.set()

        task = asyncio.create_task(use())
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(wait_until, lambda: metric(http, name) == before + 1, "the cancel")


async def test_two_requests_at_once_are_told_apart(engine_client):
    first = engine_client.generate(body(["text", "a"], ["hold"]))
    assert await anext(first) == EngineText("a")
    second = engine_client.generate(body(["text", "b"]))
    assert await anext(second) == EngineProgress("queued", None, "1 before you")
    await first.aclose()
    assert await anext(second) == EngineText("b")
    await second.aclose()


async def test_health_is_what_the_engine_says(engine_client, shared_engine):  # noqa: F811
    health = await engine_client.health()
    assert health["pid"] == shared_engine.pid


async def test_over_tcp_the_token_goes_along_and_no_proxy_is_asked(runtime, monkeypatch):  # noqa: F811
    # A proxy that nobody runs: whoever asks it fails.
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    with running_engine(runtime, "--tcp") as engine:
        record = engine.record()
        async with client_of(record["url"], record["token"]) as client:
            assert (await events_of(client, body(["text", "a"])))[0] == EngineText("a")
        async with client_of(record["url"], "wrong") as client:
            assert (await error_of(client)).code == "unauthorized"


async def test_nothing_runs_so_an_engine_starts_and_a_dead_one_is_replaced(on_demand):
    async with contextlib.aclosing(EngineClient()) as client:
        assert await client.health() is None
        events = await events_of(client, body(["text", "a"]))
        assert events[0] == EngineProgress("starting")
        assert EngineText("a") in events
        first = (await client.health())["pid"]
        # The second request finds it at once.
        assert (await events_of(client, body(["text", "b"])))[0] == EngineText("b")

        stream = client.generate(body(["text", "c"], ["hold"]))
        assert await anext(stream) == EngineText("c")
        os.kill(first, signal.SIGKILL)
        with pytest.raises(RewriteError) as caught:
            await anext(stream)
        assert (caught.value.code, caught.value.message) == ("engine_died", DIED)

        events = await events_of(client, body(["text", "d"]))
        assert events[0] == EngineProgress("starting")
        assert EngineText("d") in events
        assert (await client.health())["pid"] != first


async def test_an_engine_that_stopped_since_it_was_found_is_started_again(on_demand):
    async with contextlib.aclosing(EngineClient()) as client:
        await events_of(client, body(["text", "a"]))
        assert await engine_process.stop_engine()
        events = await events_of(client, body(["text", "b"]))
        assert EngineText("b") in events


async def test_an_engine_that_ends_before_it_answers_is_replaced(on_demand):
    """One that is killed takes connections for a moment, and then drops them."""
    async with raw_server() as dying, contextlib.aclosing(EngineClient()) as client:
        client._found = Endpoint(dying.url)
        assert EngineText("a") in await events_of(client, body(["text", "a"]))
        assert client._found != Endpoint(dying.url)


async def test_an_engine_that_is_stopping_refuses_once_and_a_new_one_answers(on_demand):
    async with contextlib.aclosing(EngineClient()) as client:
        await events_of(client, body(["text", "a"]))
        transport = httpx.AsyncHTTPTransport(uds=str(on_demand / "engine.sock"))
        async with httpx.AsyncClient(transport=transport, base_url="http://engine") as http:
            await http.post("/redraft/stop")
        # Whether it still answers with 503 or has gone already: the caller sees neither.
        assert EngineText("b") in await events_of(client, body(["text", "b"]))


async def test_a_request_that_is_too_large_is_not_even_sent(on_demand):
    async with contextlib.aclosing(EngineClient()) as client:
        error = await error_of(client, body(["text", "x" * (8 * 2**20)]))
        assert error.code == "too_large"
        assert await client.health() is None


async def test_another_server_gets_a_request_it_understands_and_is_measured():
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    async with (
        raw_server(
            SSE_HEAD,
            text_chunk("a"),
            text_chunk("b", "stop"),
            data({"choices": [], "usage": usage}),
            data("[DONE]"),
        ) as server,
        client_of(server.url, "key") as client,
    ):
        *texts, finished = await events_of(
            client, {"model": "m", "messages": [], "continue_final_message": True}
        )
        assert texts == [EngineText("a"), EngineText("b")]
        assert finished.reason == "stop"
        assert (finished.stats["prompt_tokens"], finished.stats["tokens"]) == (9, 2)
        line, headers, sent = server.requests[0]
        assert line == "POST /v1/chat/completions HTTP/1.1"
        assert headers["authorization"] == "Bearer key"
        assert sent["stream"] is True
        assert sent["stream_options"] == {"include_usage": True}
        assert sent["add_generation_prompt"] is False


async def test_a_stream_in_odd_pieces_is_the_same_stream():
    stream = b": hello\r\n\r\n" + text_chunk("äöü") + text_chunk("z", "stop") + data("[DONE]")
    pieces = [stream[i : i + 3].replace(b"\n", b"\r\n") for i in range(0, len(stream), 3)]
    async with raw_server(SSE_HEAD, *pieces) as server, client_of(server.url) as client:
        events = await events_of(client, {})
    assert events[:2] == [EngineText("äöü"), EngineText("z")]


async def test_another_server_may_leave_done_out_but_not_the_finish_reason():
    async with (
        raw_server(SSE_HEAD, text_chunk("a", "stop")) as server,
        client_of(server.url) as client,
    ):
        assert (await events_of(client, {}))[-1].reason == "stop"
    async with raw_server(SSE_HEAD, text_chunk("a")) as server, client_of(server.url) as client:
        assert (await error_of(client)).code == "engine_died"


async def test_a_connection_that_breaks_in_the_middle_is_an_error_of_its_own():
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = text_chunk("a", "stop")
    async with (
        raw_server(head, b"%x\r\n%s\r\n" % (len(chunk), chunk)) as server,
        client_of(server.url) as client,
    ):
        error = await error_of(client)
    assert error.code == "engine_died"
    assert server.url in error.message


@pytest.mark.parametrize(
    ("answer", "code", "part"),
    [
        (b"HTTP/1.1 502 Bad\r\nContent-Length: 6\r\n\r\n<html>", "server_error", "status 502"),
        (
            b"HTTP/1.1 401 No\r\nContent-Length: 48\r\n\r\n"
            b'{"error": {"code": "bad_key", "message": "No"}}\n',
            "bad_key",
            "No",
        ),
        (SSE_HEAD + b"data: <html>\n\n", "bad_answer", "chat completion"),
        (b"nonsense\r\n\r\n", "engine_died", "closed the connection"),
    ],
)
async def test_a_server_that_answers_badly_gets_a_sentence(answer, code, part):
    async with raw_server(answer) as server, client_of(server.url) as client:
        error = await error_of(client)
    assert error.code == code
    assert part in error.message


async def test_closing_the_iterator_closes_the_connection_to_any_server():
    async with (
        raw_server(SSE_HEAD, text_chunk("a"), b"WAIT FOR CLOSE") as server,
        client_of(server.url) as client,
    ):
        events = client.generate({})
        assert await anext(events) == EngineText("a")
        await events.aclose()
        await asyncio.wait_for(server.closed_by_client.wait(), 5)


async def test_nothing_at_the_address_is_said_so():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
        async with client_of(url) as client:
            error = await error_of(client)
            assert await client.health() is None
    assert error.code == "engine_unreachable"
    assert url in error.message


@pytest.mark.parametrize(
    "url", ["", "nonsense", "ftp://x", "http://", "http://[::1", "http://h:99999", "http://h:x/v1"]
)
async def test_an_address_that_is_none_is_refused(url):
    async with client_of(url) as client:
        assert (await error_of(client)).code == "invalid_engine_url"


async def test_the_health_of_another_server_is_the_name_of_its_model():
    answer = b'{"data": [{"id": "its-model"}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(answer)
    async with raw_server(head + answer) as server, client_of(server.url) as client:
        # Any path gets the same answer here, so /healthz does too.
        assert (await client.health())["data"] == [{"id": "its-model"}]
    async with (
        raw_server(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n") as server,
        client_of(server.url) as client,
    ):
        assert await client.health() is None
        assert [line.split()[1] for line, _, _ in server.requests] == ["/healthz", "/v1/models"]


@pytest.mark.parametrize("own", [True, False])
async def test_only_our_own_engine_is_told_the_window(own):
    async with raw_server(SSE_HEAD, text_chunk("a", "stop"), data("[DONE]")) as server:
        endpoint = Endpoint(server.url)
        client = EngineClient(None if own else endpoint, window="w")
        if own:
            client._found = endpoint
        async with contextlib.aclosing(client):
            await events_of(client, {"messages": [], "redraft": {"draft": True}})
    ((_, _, sent),) = server.requests
    assert sent["redraft"] == {"draft": True, **({"window": "w"} if own else {})}
