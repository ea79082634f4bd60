"""Private folders and files, the log, and the agreement with the language server."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from engine.server import runtime_folder
from engine.server.endpoint import publish, withdraw
from engine.server.logs import LOG_BYTES, OUTPUT_BYTES, log_failure, logger, start_log
from engine.server.runtime_folder import StartError, make_private, make_runtime_folder
from lsp_server import engine_files
from tests.engine.server.process import ROOT


@pytest.mark.parametrize("chosen", [None, "relative/folder", "/an/absolute/one"])
def test_engine_and_language_server_look_in_the_same_folders(monkeypatch, chosen):
    monkeypatch.delenv("REDRAFT_RUNTIME_DIR", raising=False)
    if chosen is not None:
        monkeypatch.setenv("REDRAFT_RUNTIME_DIR", chosen)
    folders = runtime_folder.candidate_folders()
    assert folders == engine_files.candidate_folders()
    assert all(folder.is_absolute() for folder in folders)
    assert len(folders) == (2 if chosen is None else 1)


def test_output_and_log_go_to_the_same_folder(monkeypatch, tmp_path):
    monkeypatch.delenv("REDRAFT_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert runtime_folder.log_folder(tmp_path / "run") == engine_files.output_file().parent


def test_the_second_candidate_is_taken_when_the_first_cannot_be_made(monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    good = tmp_path / "good"
    monkeypatch.setattr(runtime_folder, "candidate_folders", lambda: [blocked / "x", good])
    assert make_runtime_folder() == good


def test_a_folder_of_another_user_is_refused(monkeypatch, tmp_path):
    folder = make_private(tmp_path / "mine")
    stranger = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: stranger)
    with pytest.raises(StartError, match="belongs to another user"):
        make_private(folder)


def test_a_folder_that_everybody_can_swap_is_refused(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(StartError, match="can be changed by everybody"):
        make_private(tmp_path / "mine")
    tmp_path.chmod(0o1777)
    assert make_private(tmp_path / "mine").is_dir()


def test_a_record_is_removed_only_while_it_is_ours(tmp_path):
    class AnyDoor:
        url, token = "unix:/x", None

    first = publish(tmp_path, AnyDoor, "1")  # type: ignore[arg-type]
    second = publish(tmp_path, AnyDoor, "2")  # type: ignore[arg-type]
    withdraw(tmp_path, first)
    assert (tmp_path / "engine.json").read_bytes() == second
    withdraw(tmp_path, second)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def log(tmp_path):
    handler = start_log(tmp_path)
    yield tmp_path / "engine.log"
    logging.getLogger().removeHandler(handler)
    handler.close()


def test_the_log_stays_small_and_private(log):
    for _ in range(4):
        logger.info("x" * (LOG_BYTES // 2))
    files = sorted(log.parent.glob("engine.log*"))
    assert [file.name for file in files] == ["engine.log", "engine.log.1"]
    for file in files:
        assert file.stat().st_size <= LOG_BYTES
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_failure_is_logged_with_its_place_and_cause_but_not_its_text(log):
    secret = "def private(): pass"
    try:
        try:
            {}[secret]
        except KeyError as error:
            raise RuntimeError("the device is lost") from error
    except RuntimeError as error:
        log_failure("testing", error)
    text = log.read_text()
    assert "RuntimeError: the device is lost" in text
    assert "KeyError\n" in text
    assert "test_a_failure_is_logged" in text
    assert secret not in text


def test_the_output_of_a_detached_engine_is_emptied_when_it_grows(tmp_path):
    script = (
        "import os\n"
        "from engine.server.logs import bound_output\n"
        f"os.write(2, b'x' * {OUTPUT_BYTES})\n"
        "bound_output(); print(os.fstat(2).st_size)\n"
        "os.write(2, b'y')\n"
        "bound_output(); print(os.fstat(2).st_size)\n"
        "os.write(2, b'z'); print(os.fstat(2).st_size)\n"
    )
    with (tmp_path / "out").open("ab") as output:
        result = subprocess.run(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=output, cwd=ROOT
        )
    assert result.stdout.split() == [str(OUTPUT_BYTES).encode(), b"0", b"1"]


def test_the_engine_imports_no_torch_before_it_serves():
    script = (
        "import sys, engine.__main__, engine.server.lifecycle\n"
        "print([m for m in ('torch', 'transformers', 'lsp_server') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, cwd=ROOT)
    assert result.stdout.strip() == b"[]", result.stderr


def test_the_temp_folder_of_tests_is_short_enough_for_a_socket():
    # Else the tests of the socket would test its fallback without saying so.
    assert len(str(Path(tempfile.gettempdir()) / "rd-12345678/run/engine.sock")) < 100
