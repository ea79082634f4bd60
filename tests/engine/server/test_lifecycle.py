"""The life of the process: real processes, real signals, real files."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import time

import httpx
import pytest

from engine.server.endpoint import MAX_SOCKET_PATH, socket_path
from tests.engine.server.process import (
    EngineProcess,
    body,
    metric,
    running_engine,
    wait_until,
)

COMPLETIONS = "/v1/chat/completions"

unix_only = pytest.mark.skipif(os.name != "posix", reason="modes and signals of Unix")


def mode(path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def first_line(response: httpx.Response) -> str:
    return next(line for line in response.iter_lines() if line)


@unix_only
def test_everything_of_a_running_engine_is_private(runtime):
    mask = os.umask(0)
    try:
        with running_engine(runtime) as engine:
            assert mode(runtime) == 0o700
            assert stat.S_ISSOCK((runtime / "engine.sock").lstat().st_mode)
            for name in ("engine.sock", "engine.json", "engine.lock", "engine.log"):
                assert mode(runtime / name) == 0o600, name
            assert engine.record() == {
                "url": f"unix:{runtime}/engine.sock",
                "token": None,
                "pid": engine.pid,
                "version": engine.client().get("/healthz").json()["version"],
            }
    finally:
        os.umask(mask)


@unix_only
def test_a_folder_that_is_open_to_others_is_mended(runtime):
    runtime.mkdir()
    runtime.chmod(0o777)
    with running_engine(runtime):
        assert mode(runtime) == 0o700


@unix_only
def test_a_folder_that_is_a_link_is_refused_with_a_sentence(runtime, tmp_path):
    runtime.symlink_to(tmp_path)
    engine = EngineProcess(runtime)
    try:
        assert engine.wait() == 1
        assert engine.output() == (
            f"redraft engine: The engine's runtime folder cannot be used: {runtime} is not a "
            "folder. Set REDRAFT_RUNTIME_DIR to a folder of your own.\n"
        )
        assert not list(tmp_path.iterdir())
    finally:
        engine.end()


def test_a_second_engine_exits_and_leaves_the_first_alone(runtime):
    with running_engine(runtime) as first:
        second = EngineProcess(runtime)
        assert second.wait() == 0
        assert second.output() == "redraft engine: already running\n"
        second.end()
        with first.client() as client:
            assert client.get("/healthz").json()["pid"] == first.pid


@unix_only
def test_a_killed_engine_leaves_files_that_the_next_one_replaces(runtime):
    with running_engine(runtime) as first:
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert (runtime / "engine.sock").exists()
        assert json.loads((runtime / "engine.json").read_text())["pid"] == first.pid
        with running_engine(runtime) as second, second.client() as client:
            assert client.get("/healthz").json()["pid"] == second.pid
            assert client.post(COMPLETIONS, json=body(["text", "a"])).status_code == 200


@unix_only
def test_a_kill_in_the_middle_ends_the_stream_without_done(runtime):
    with running_engine(runtime) as engine, engine.client() as client:
        request = body(["text", "a"], ["hold"], stream=True)
        with client.stream("POST", COMPLETIONS, json=request) as response:
            lines = response.iter_lines()
            assert '"content":"a"' in next(lines)
            os.kill(engine.pid, signal.SIGKILL)
            with pytest.raises(httpx.RemoteProtocolError):
                list(lines)


def test_an_idle_engine_stops_and_tidies_up(runtime):
    with running_engine(runtime, "--idle-seconds", "0.3") as engine:
        assert engine.wait() == 0
        assert sorted(path.name for path in runtime.iterdir()) == ["engine.lock", "engine.log"]


def test_work_keeps_the_engine_up_beyond_its_idle_time(runtime):
    with running_engine(runtime, "--idle-seconds", "0.3") as engine, engine.client() as client:
        release = runtime / "release"
        request = body(["text", "a"], ["until", str(release)], stream=True)
        began = time.monotonic()
        with client.stream("POST", COMPLETIONS, json=request) as response:
            lines = response.iter_lines()
            next(lines)
            # Three idle times go by, seen from here, while the answer is being written.
            wait_until(lambda: time.monotonic() - began > 0.9, "time")
            release.touch()
            assert list(lines)[-2] == "data: [DONE]"
        assert engine.wait() == 0


def test_asking_for_the_health_does_not_keep_the_engine_up(runtime):
    with running_engine(runtime, "--idle-seconds", "0.3") as engine, engine.client() as client:

        def gone() -> bool:
            with contextlib.suppress(httpx.TransportError):
                client.get("/healthz")
            return engine.process.poll() is not None

        wait_until(gone, "the idle stop")


@unix_only
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_cancels_the_work_and_ends_the_engine_within_two_seconds(runtime, number):
    with running_engine(runtime) as engine, engine.client() as client:
        request = body(["text", "a"], ["hold"], stream=True)
        with client.stream("POST", COMPLETIONS, json=request) as response:
            lines = response.iter_lines()
            next(lines)
            began = time.monotonic()
            os.kill(engine.pid, number)
            rest = [line for line in lines if line]
            assert json.loads(rest[-1].removeprefix("data: "))["error"]["code"] == "engine_stopping"
            assert engine.wait() == 0
            assert time.monotonic() - began < 2.0
        assert not (runtime / "engine.json").exists()
        assert not (runtime / "engine.sock").exists()


@unix_only
def test_a_generator_that_is_deaf_to_the_cancel_does_not_hold_up_the_end(runtime):
    with running_engine(runtime) as engine, engine.client() as client:
        request = body(["text", "a"], ["stuck", str(runtime / "never")], stream=True)
        with client.stream("POST", COMPLETIONS, json=request) as response:
            next(response.iter_lines())
            began = time.monotonic()
            os.kill(engine.pid, signal.SIGTERM)
            assert engine.wait() == 0
            assert time.monotonic() - began < 2.5
        assert not (runtime / "engine.json").exists()


def test_a_client_that_goes_while_the_generator_is_deaf_frees_the_next_one_later(runtime):
    with running_engine(runtime) as engine, engine.client() as client:
        release = runtime / "release"
        request = body(["text", "a"], ["stuck", str(release)], stream=True)
        with client.stream("POST", COMPLETIONS, json=request) as response:
            first_line(response)
        with client.stream("POST", COMPLETIONS, json=body(["text", "b"], stream=True)) as response:
            lines = response.iter_lines()
            assert "1 before you" in next(lines)
            release.touch()
            assert list(lines)[-2] == "data: [DONE]"
        assert metric(client, 'redraft_requests_total{outcome="cancelled"}') == 1


def test_the_stop_request_ends_the_engine(runtime):
    with running_engine(runtime) as engine, engine.client() as client:
        assert client.post("/redraft/stop").json() == {"status": "stopping"}
        assert engine.wait() == 0


def test_the_last_engine_leaves_the_files_of_another_alone(runtime):
    with running_engine(runtime) as engine:
        (runtime / "engine.json").write_text("somebody else's")
        with client_by_socket(engine) as client:
            client.post("/redraft/stop")
        assert engine.wait() == 0
        assert (runtime / "engine.json").read_text() == "somebody else's"


@contextlib.contextmanager
def client_by_socket(engine: EngineProcess):
    transport = httpx.HTTPTransport(uds=str(engine.runtime / "engine.sock"))
    with httpx.Client(transport=transport, base_url="http://engine") as client:
        yield client


def test_over_tcp_only_the_token_opens_the_door(runtime):
    with running_engine(runtime, "--tcp") as engine, engine.client() as client:
        record = engine.record()
        assert record is not None
        assert record["url"].startswith("http://127.0.0.1:")
        assert len(record["token"]) >= 32
        assert client.post(COMPLETIONS, json=body(["text", "a"])).status_code == 200
        assert not (runtime / "engine.sock").exists()
        stranger = httpx.Client(base_url=record["url"], trust_env=False, verify=False)
        for given in (None, "Bearer wrong", "Bearer", record["token"], f"Basic {record['token']}"):
            headers = {} if given is None else {"Authorization": given}
            for path in ("/healthz", "/nothing", "/metrics"):
                answer = stranger.get(path, headers=headers)
                assert answer.status_code == 401
                assert answer.json()["error"]["code"] == "unauthorized"


@unix_only
def test_a_long_runtime_path_gets_a_short_private_socket(runtime):
    deep = runtime / ("long" * 15) / ("longer" * 10)
    with running_engine(deep) as engine, engine.client() as client:
        record = engine.record()
        assert record is not None
        path = socket_path(deep)
        assert record["url"] == f"unix:{path}"
        assert len(os.fsencode(path)) <= MAX_SOCKET_PATH
        assert (mode(path.parent), mode(path)) == (0o700, 0o600)
        assert client.get("/healthz").json()["status"] == "idle"
        client.post("/redraft/stop")
        assert engine.wait() == 0
    assert not path.exists()
    path.parent.rmdir()
