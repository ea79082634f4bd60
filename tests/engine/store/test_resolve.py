"""From what a person types to a folder that transformers can load."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import threading

import pytest

from engine import store
from engine.core import EngineError
from engine.gguf_convert import weights
from engine.store import known, snapshot
from engine.store.converted import converted_folder, key_of_state
from tests.engine.store import tiny
from tests.engine.store.conftest import Said


def never() -> bool:
    return False


def resolve(model, said=None):
    return store.resolve(str(model), said or Said(), never)


def assert_fails(model, code: str, match: str) -> None:
    with pytest.raises(EngineError, match=match) as caught:
        resolve(model)
    assert caught.value.code == code


@pytest.fixture
def gguf(tmp_path):
    return tiny.write_gguf(tiny.qwen2(), tmp_path / "tiny-q.gguf")


def test_a_gguf_path_is_converted_once(gguf, cache):
    folder = resolve(gguf)
    assert folder.parent == cache / "converted"
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= {
        file.name for file in folder.iterdir()
    }
    said = Said()
    assert resolve(gguf, said) == folder
    assert said.progress == []


def test_a_changed_gguf_is_converted_anew_and_the_old_conversion_goes(gguf, cache):
    before = resolve(gguf)
    os.utime(gguf, ns=(1, 1))
    after = resolve(gguf)
    assert after != before
    assert [folder.name for folder in (cache / "converted").iterdir()] == [after.name]


@pytest.mark.parametrize("damage", ["cut", "removed", "note"])
def test_a_damaged_conversion_is_rebuilt(gguf, damage):
    folder = resolve(gguf)
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    if damage == "cut":
        file.write_bytes(whole[:-1])
    elif damage == "removed":
        file.unlink()
    else:
        (folder / "redraft.json").write_text("{")
    assert resolve(gguf) == folder
    assert file.read_bytes() == whole


def test_what_a_killed_conversion_left_is_removed(gguf, cache):
    folder = converted_folder(gguf, key_of_state(gguf))
    left_over = folder.with_name(f".{folder.name}.abcd")
    left_over.mkdir(parents=True)
    (left_over / "model.safetensors").write_bytes(b"half")
    resolve(gguf)
    assert list((cache / "converted").iterdir()) == [folder]


def test_two_at_once_convert_once(gguf, monkeypatch):
    written: list[str] = []
    original = weights.write_weights
    monkeypatch.setattr(
        weights, "write_weights", lambda *a: (written.append(str(a[0])), original(*a))
    )
    results = []
    threads = [threading.Thread(target=lambda: results.append(resolve(gguf))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 2
    assert len(written) == 1


def test_a_disk_that_fills_up_while_converting_is_said_and_leaves_nothing(gguf, cache, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(weights._Writer, "write", full)
    assert_fails(gguf, "disk_full", "Converting tiny-q.gguf needs .*REDRAFT_CACHE_DIR")
    assert list((cache / "converted").iterdir()) == []


def test_too_little_room_for_the_conversion_is_said(gguf, monkeypatch):
    usage = shutil.disk_usage(gguf.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert_fails(gguf, "disk_full", "Converting tiny-q.gguf needs")


def test_a_known_name_is_pulled_and_converted(gguf, hub, monkeypatch):
    content = gguf.read_bytes()
    row = known.KNOWN_MODELS[0]._replace(
        name="small",
        repo="org/small",
        file="small.gguf",
        size=len(content),
        sha256=store.pull.__globals__["file_sha256"](gguf, Said(), never),
    )
    monkeypatch.setattr(known, "KNOWN_MODELS", (row,))
    hub.files["/org/small/resolve/main/small.gguf"] = content
    said = Said()
    assert not store.is_cached("small")
    folder = resolve("Small", said)
    assert (folder / "model.safetensors").is_file()
    assert {each.phase for each in said.progress} == {"fetching", "converting"}
    assert store.is_cached("small")
    hub.asked.clear()
    assert resolve("small") == folder
    assert hub.asked == []


def test_an_unknown_name_lists_the_known_ones_and_the_nearest():
    assert_fails(
        "qwen2.5-coder-1.5b",
        "model_not_found",
        "did you mean qwen2.5-coder-1.5b-instruct.*qwen2.5-coder-0.5b-instruct.*hub id",
    )


@pytest.mark.parametrize("model", ["./nothing", "/no/such/folder", "~/nothing.gguf", "a.gguf"])
def test_a_path_that_is_not_there_is_called_a_path(model):
    assert_fails(model, "model_not_found", "no file or folder")


@pytest.mark.parametrize("model", ["", " ", "a\0b", "x" * 5000, "a/b/c/d", "-rf", "名前"])
def test_nonsense_is_an_unknown_name(model):
    assert_fails(model, "model_not_found", "There is no model")


def test_a_hub_id_without_a_hub_is_a_failed_download():
    assert_fails("org/model", "download_failed", "hub cannot be reached")


def folder_with(tmp_path, *names: str):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("{}")
    return folder


def test_a_folder_with_safetensors_is_taken_as_it_is(tmp_path):
    folder = folder_with(tmp_path, "config.json", "model.safetensors")
    assert resolve(folder) == folder


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (("model.safetensors",), "no config.json"),
        (("some.gguf",), "give the path of some.gguf"),
        (("config.json",), "no .safetensors"),
        (("config.json", "pytorch_model.bin"), "only as .bin or .pt"),
    ],
)
def test_a_folder_that_lacks_something_is_refused(tmp_path, names, match):
    assert_fails(folder_with(tmp_path, *names), "unsupported_model", match)


def test_a_folder_that_lacks_a_shard_is_refused(tmp_path):
    folder = folder_with(tmp_path, "config.json", "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_fails(folder, "unsupported_model", "lacks 1 of its 2 weight files, e.g. model-2")


def test_a_file_that_is_no_gguf_is_refused(tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("hello")
    assert_fails(file, "unsupported_model", "not a whole GGUF file")


def test_only_safe_files_of_a_repository_are_fetched():
    names = [
        "config.json",
        "model-00001-of-00002.safetensors",
        "model.safetensors.index.json",
        "tokenizer.json",
        "tokenizer.model",
        "chat_template.jinja",
        "merges.txt",
        "consolidated.safetensors",
        "pytorch_model.bin",
        "modeling_evil.py",
        "tokenizer_evil.py",
        "original/model.safetensors",
        "README.md",
    ]
    files = snapshot.wanted_files("org/m", [snapshot._File(name, 1) for name in names])
    assert [file.name for file in files] == names[:7]


@pytest.mark.parametrize(
    ("name", "match"), [("a.gguf", "only GGUF files"), ("pytorch_model.bin", "no safetensors")]
)
def test_a_repository_without_safetensors_is_refused(name, match):
    with pytest.raises(EngineError, match=match) as caught:
        snapshot.wanted_files("org/m", [snapshot._File(name, 1)])
    assert caught.value.code == "unsupported_model"


def test_a_hub_id_that_the_hub_does_not_know_is_not_found(hub):
    assert_fails("org/nothing", "model_not_found", "org/nothing .404.*HF_TOKEN")


def test_what_is_no_hub_is_said(hub):
    hub.files["/api/models/org/odd"] = b"<html>hello</html>"
    assert_fails("org/odd", "download_failed", "is no hub")


def test_a_failing_snapshot_shows_its_reason(hub):
    files = {"siblings": [{"rfilename": "model.safetensors", "size": 5}]}
    hub.files["/api/models/org/odd"] = json.dumps(files).encode()
    assert_fails("org/odd", "download_failed", "org/odd could not be fetched: .*run again")


def test_the_store_is_imported_without_torch_and_transformers():
    code = (
        "import sys, engine.store\n"
        "engine.store.is_cached('qwen2.5-coder-1.5b-instruct')\n"
        "print([m for m in ('torch', 'transformers', 'gguf') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
