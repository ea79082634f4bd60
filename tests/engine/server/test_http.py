"""The routes, asked of a real process over its Unix socket."""

from __future__ import annotations

import contextlib
import json
import threading

import httpx
import pytest

from tests.engine.server.process import body, events_of, metric, wait_until

COMPLETIONS = "/v1/chat/completions"


@pytest.fixture
def client(shared_engine):
    with shared_engine.client() as client:
        yield client
        # Whatever a test did, the engine must be idle and well afterwards.
        wait_until(lambda: client.get("/healthz").json()["status"] == "idle", "idle again")


@contextlib.contextmanager
def streaming(client: httpx.Client, request):
    with client.stream("POST", COMPLETIONS, json=request) as response:
        assert response.status_code == 200
        yield response, response.iter_lines()


def next_event(lines):
    for line in lines:
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream has ended")


def outcome(client: httpx.Client, name: str) -> float:
    return metric(client, f'redraft_requests_total{{outcome="{name}"}}')


def test_an_answer_without_stream_is_one_object(client):
    answer = client.post(COMPLETIONS, json=body(["text", "def "], ["copy", "f", 4])).json()
    assert answer["choices"][0]["message"]["content"] == "def f"
    assert answer["usage"]["completion_tokens"] == 5
    assert answer["redraft"]["stats"]["accepted_by_origin"] == {"source": 3}


def test_a_stream_has_progress_text_end_usage_and_done_in_this_order(client):
    request = body(["progress", "prefill", 0.5], ["text", "a"], ["copy", "bc", 9], stream=True)
    response = client.post(COMPLETIONS, json=request)
    assert response.headers["content-type"].startswith("text/event-stream")
    progress, first, second, end, usage, done = events_of(response.text)
    assert progress["redraft"]["progress"] == {
        "phase": "prefill",
        "fraction": 0.5,
        "detail": "detail of prefill",
    }
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": "a"}
    assert second["redraft"]["copied"] == [[0, 9, 2]]
    assert end["choices"][0] == {"index": 0, "delta": {}, "finish_reason": "stop"}
    assert usage["redraft"]["stats"]["tokens"] == 5
    assert done == "[DONE]"
    assert len({event["id"] for event in (progress, first, second, end, usage)}) == 1


def test_a_client_that_does_not_know_us_gets_only_what_openai_sends(client):
    request = body(["progress", "prefill", 0.5], ["text", "a"], stream=True)
    del request["redraft"]
    response = client.post(COMPLETIONS, json=request)
    text, end, done = events_of(response.text)
    assert text["choices"][0]["delta"]["content"] == "a"
    assert end["choices"][0]["finish_reason"] == "stop"
    assert done == "[DONE]"
    assert ": prefill detail of prefill\n\n" in response.text


def test_the_length_limit_shows_in_the_finish_reason(client):
    answer = client.post(COMPLETIONS, json=body(["text", "a"], ["finish", "length"])).json()
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("code", "status"), [("model_not_found", 404), ("disk_full", 507), ("download_failed", 502)]
)
def test_an_error_before_the_first_event_has_its_own_status(client, code, status, stream):
    response = client.post(COMPLETIONS, json=body(["error", code], stream=stream))
    assert response.status_code == status
    assert response.json()["error"] == {
        "message": f"The fake engine was told to say {code}.",
        "type": "invalid_request_error" if status < 500 else "server_error",
        "code": code,
        "param": None,
    }


def test_an_error_after_the_headers_ends_the_stream_without_done(client):
    request = body(["text", "a"], ["until", "/"], ["error", "out_of_memory"], stream=True)
    events = events_of(client.post(COMPLETIONS, json=request).text)
    assert events[-1]["error"]["code"] == "out_of_memory"
    assert "[DONE]" not in events


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ValueError", "internal"),
        ("SystemExit", "internal"),
        ("MemoryError", "out_of_memory"),
        ("OutOfMemoryError", "out_of_memory"),
    ],
)
def test_a_fault_of_the_generator_costs_one_request(client, shared_engine, name, code):
    response = client.post(COMPLETIONS, json=body(["raise", name]))
    assert response.json()["error"]["code"] == code
    assert client.post(COMPLETIONS, json=body(["text", "on it goes"])).status_code == 200
    log = (shared_engine.runtime / "engine.log").read_text()
    assert f"\n{name}" in log
    assert "in take" in log


def test_the_log_never_quotes_what_a_request_holds(client, shared_engine):
    client.post(COMPLETIONS, json=body(["raise", "ValueError"]))
    client.post(COMPLETIONS, content=b'{"model": "secret words of the source"')
    assert "secret" not in (shared_engine.runtime / "engine.log").read_text()


def test_a_generator_that_just_ends_is_a_fault(client):
    response = client.post(COMPLETIONS, json=body(["end"]))
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")


def test_a_bad_request_names_the_key(client):
    response = client.post(COMPLETIONS, json=body(temperature="hot"))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "temperature"
    assert response.json()["error"]["code"] == "invalid_request"


def test_a_body_over_8_mib_is_refused_with_our_error_body(client):
    response = client.post(COMPLETIONS, content=b" " * (8 * 2**20 + 1))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "invalid_request"
    fits = json.dumps(body(["text", "big"])).encode()
    fits += b" " * (8 * 2**20 - len(fits))
    assert client.post(COMPLETIONS, content=fits).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("POST", "/v1/nothing", 404), ("GET", COMPLETIONS, 405)],
)
def test_an_unknown_path_or_method_has_our_error_body(client, method, path, status):
    response = client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["code"] == "invalid_request"


def test_models_lists_the_loaded_one_first_and_each_once(client):
    client.post(COMPLETIONS, json=body(["text", "a"], model="fake-two"))
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [model["id"] for model in listed["data"]] == ["fake-two", "fake-one"]


def test_a_request_that_names_no_model_gets_the_default(client):
    answer = client.post(COMPLETIONS, json=body(["text", "a"], model="default")).json()
    assert answer["redraft"]["stats"]["model"] == "qwen2.5-coder-1.5b-instruct"


def test_health_says_what_the_engine_does(client, shared_engine):
    with streaming(client, body(["progress", "prefill", 0.5], ["hold"], stream=True)) as (_, lines):
        next_event(lines)
        health = client.get("/healthz").json()
    assert health == {
        "status": "busy",
        "version": health["version"],
        "pid": shared_engine.pid,
        "model": "fake-one",
        "running": {
            "runner": "fake",
            "device": "cpu",
            "dtype": "none",
            "exact": True,
            "notice": "",
        },
        "active": 1,
        "queued": 0,
        "activity": {"phase": "prefill", "fraction": 0.5, "detail": "detail of prefill"},
    }


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([["progress", "prefill", 0.1], ["hold"]], id="during prefill"),
        pytest.param([["text", "a"], ["hold"]], id="while decoding"),
    ],
)
def test_closing_the_connection_cancels_the_work(client, steps):
    before = outcome(client, "cancelled")
    with streaming(client, body(*steps, stream=True)) as (_, lines):
        next_event(lines)
        assert client.get("/healthz").json()["active"] == 1
    wait_until(lambda: outcome(client, "cancelled") == before + 1, "the cancel")
    assert client.get("/healthz").json()["active"] == 0


def test_closing_the_connection_cancels_an_answer_without_stream(client, shared_engine, runtime):
    before = outcome(client, "cancelled")
    runtime.mkdir()
    began = runtime / "began"

    def ask():
        with shared_engine.client() as other, contextlib.suppress(httpx.TransportError):
            others.append(other)
            other.post(COMPLETIONS, json=body(["touch", str(began)], ["hold"]), timeout=0.5)

    others: list[httpx.Client] = []
    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(began.exists, "the beginning")
    thread.join()  # its timeout closes the connection
    wait_until(lambda: outcome(client, "cancelled") == before + 1, "the cancel")


def test_a_second_request_waits_and_is_told_its_place(client, runtime):
    runtime.mkdir()
    release = runtime / "release"
    first = body(["text", "a"], ["until", str(release)], stream=True)
    with streaming(client, first) as (_, lines):
        next_event(lines)
        with (
            streaming(client, body(["text", "b"], stream=True)) as (_, second),
            streaming(client, body(["text", "c"], stream=True)) as (_, third),
        ):
            assert next_event(second)["redraft"]["progress"]["detail"] == "1 before you"
            assert next_event(third)["redraft"]["progress"]["detail"] == "2 before you"
            assert client.get("/healthz").json()["queued"] == 2
            release.touch()
            assert next_event(second)["choices"][0]["delta"]["content"] == "b"
            event = next_event(third)
            while event.get("redraft"):
                assert event["redraft"]["progress"]["detail"] == "1 before you"
                event = next_event(third)
            assert event["choices"][0]["delta"]["content"] == "c"


def test_a_queued_request_whose_client_goes_is_dropped_at_once(client):
    before = outcome(client, "cancelled")
    with streaming(client, body(["text", "a"], ["hold"], stream=True)) as (_, lines):
        next_event(lines)
        with streaming(client, body(["text", "b"], stream=True)) as (_, queued):
            next_event(queued)
            assert client.get("/healthz").json()["queued"] == 1
        wait_until(lambda: client.get("/healthz").json()["queued"] == 0, "the drop")
        assert client.get("/healthz").json()["active"] == 1
        assert outcome(client, "cancelled") == before + 1


def test_the_queue_holds_32_and_no_more(client):
    with contextlib.ExitStack() as stack:
        # A reader that nobody holds closes its connection, so they are kept.
        readers = []
        for steps in ([["text", "a"], ["hold"]], *[[["text", "b"]]] * 32):
            _, lines = stack.enter_context(streaming(client, body(*steps, stream=True)))
            next_event(lines)
            readers.append(lines)
        assert client.get("/healthz").json()["queued"] == 32
        refused = client.post(COMPLETIONS, json=body(["text", "c"]))
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_busy")


def test_a_slow_reader_gets_the_whole_answer(client):
    steps = [["text", f"{i} " * 50] for i in range(2000)]
    with client.stream("POST", COMPLETIONS, json=body(*steps, stream=True)) as response:
        # The engine has finished long before we read: nothing is lost, nobody is held up.
        wait_until(lambda: client.get("/healthz").json()["status"] == "idle", "idle")
        events = events_of(response.read().decode())
    texts = [e["choices"][0]["delta"].get("content", "") for e in events[:-1] if e["choices"]]
    assert "".join(texts) == "".join(step[1] for step in steps)
    assert events[-1] == "[DONE]"


def test_metrics_count_tokens_passes_and_drafts_by_origin(client):
    names = [
        "redraft_tokens_total",
        "redraft_passes_total",
        'redraft_drafted_total{origin="source"}',
        'redraft_accepted_total{origin="source"}',
        'redraft_prompt_tokens_total{cached="yes"}',
        "redraft_first_token_seconds_count",
        'redraft_requests_total{outcome="stop"}',
    ]
    before = [metric(client, name) for name in names]
    client.post(COMPLETIONS, json=body(["text", "a"], ["copy", "bcd", 0]))
    after = [metric(client, name) for name in names]
    assert [b - a for a, b in zip(before, after, strict=True)] == [5, 2, 5, 3, 2, 1, 1]
    assert metric(client, "redraft_active") == 0
