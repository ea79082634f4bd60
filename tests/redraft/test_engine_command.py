"""`redraft engine`, with a fake engine as the one that it starts."""

from __future__ import annotations

import json
import os
import signal

import pytest

from redraft.cli import main
from tests.engine.server.conftest import runtime  # noqa: F401
from tests.engine.server.process import engine_of_our_own, running_engine


@pytest.fixture
def our_engine(runtime, monkeypatch):  # noqa: F811
    with engine_of_our_own(runtime, monkeypatch) as folder:
        yield folder


def test_start_status_and_stop_tell_what_is(our_engine, capsys):
    assert main(["engine", "status"]) == 1
    assert capsys.readouterr().out == "The engine does not run; the next rewrite starts it.\n"
    assert main(["engine", "start", "--idle-seconds", "60"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("The engine runs as process ")
    assert err == "Starting the engine ...\n"
    assert main(["engine", "status"]) == 0
    assert ", model not loaded yet, idle.\n" in capsys.readouterr().out
    assert main(["engine", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "idle"
    assert main(["engine", "start"]) == 0
    assert main(["engine", "stop"]) == 0
    assert main(["engine", "stop"]) == 0
    assert capsys.readouterr().out.endswith("The engine has stopped.\nThe engine did not run.\n")


def test_options_for_an_engine_that_runs_already_are_refused(our_engine, capsys):
    with running_engine(our_engine):
        assert main(["engine", "start", "--model", "other"]) == 1
    assert "runs already" in capsys.readouterr().err


def test_a_wrong_option_is_reported_in_the_engines_own_words(our_engine, capsys):
    assert main(["engine", "start", "--idle-seconds=-1"]) == 1
    assert "--idle-seconds: must be 0 or more seconds" in capsys.readouterr().err


def test_an_engine_that_is_silent_is_not_called_stopped(our_engine, capsys):
    with running_engine(our_engine) as engine:
        os.kill(engine.pid, signal.SIGSTOP)
        assert main(["engine", "status"]) == 1
        assert "runs but does not answer" in capsys.readouterr().out
        assert main(["engine", "status", "--json"]) == 1
        assert json.loads(capsys.readouterr().out) == {"status": "silent"}
        os.kill(engine.pid, signal.SIGCONT)
