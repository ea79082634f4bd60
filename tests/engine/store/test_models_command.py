"""`redraft models`: its output, exit codes and one-sentence errors."""

from __future__ import annotations

import argparse

import pytest

from redraft.commands import models
from tests.engine.store.conftest import CONTENT


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    models.add_parser(parser.add_subparsers())
    return int(models.run(parser.parse_args(["models", *words])))


def test_list_shows_size_use_and_whether_it_is_cached(model, cache, capsys):
    assert run("list") == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert row.split() == ["tiny", "10", "MB", "no", "a", "test"]


def test_pull_of_a_damaged_download_exits_with_5_and_one_line(model, hub, capsys):
    hub.files["/org/tiny-GGUF/resolve/main/tiny.gguf"] = b"X" + CONTENT[1:]
    assert run("pull", "tiny") == 5
    captured = capsys.readouterr()
    assert captured.err.splitlines()[-1].startswith("redraft: What came for tiny is damaged")
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_pull_writes_plain_lines_with_size_and_speed_where_there_is_no_terminal(model, hub, capsys):
    # The bytes are no GGUF file, so the conversion fails after the download.
    assert run("pull", "tiny") == 5
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "fetching tiny: looking for tiny"
    assert "not a whole GGUF file" in lines[-1]
    assert not any("\x1b" in line for line in lines)


def test_path_and_verify_of_a_pulled_model(model, hub, cache, capsys):
    run("pull", "tiny")
    capsys.readouterr()
    assert run("path", "tiny") == 0
    assert capsys.readouterr().out.strip() == str(cache / "tiny.gguf")
    assert run("verify", "tiny") == 0
    assert model.sha256 in capsys.readouterr().out


def test_verify_of_a_damaged_file_says_what_to_do(model, hub, cache, capsys):
    run("pull", "tiny")
    (cache / "tiny.gguf").write_bytes(b"X" + CONTENT[1:])
    assert run("verify", "tiny") == 5
    assert "run `redraft models pull tiny`" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["path", "verify"])
def test_a_model_that_is_not_cached_exits_with_5(model, action, capsys):
    assert run(action, "tiny") == 5
    assert "redraft models pull tiny" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["pull", "path", "verify"])
def test_an_unknown_name_exits_with_5(model, action, capsys):
    assert run(action, "huge") == 5
    assert "There is no model 'huge'" in capsys.readouterr().err


def test_an_interruption_exits_with_130(model, monkeypatch, capsys):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("engine.store.pull", interrupted)
    assert run("pull", "tiny") == 130
    assert "Interrupted" in capsys.readouterr().err
