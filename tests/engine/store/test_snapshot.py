"""A model of the hub, fetched from a hub on this machine."""

from __future__ import annotations

import json

import pytest

from engine import store
from engine.core import Cancelled
from tests.engine.store.conftest import Said

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(300_000),
    "pytorch_model.bin": bytes(10),
    "evil.py": b"raise SystemExit",
}


@pytest.fixture
def repository(hub, tmp_path, monkeypatch):
    """`org/model` on the hub of the test, with a cache of huggingface_hub of its own."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf"))
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    siblings = [{"rfilename": name, "size": len(content)} for name, content in FILES.items()]
    info = json.dumps({"id": "org/model", "sha": COMMIT, "siblings": siblings}).encode()
    hub.files["/api/models/org/model"] = info
    hub.files["/api/models/org/model/revision/main"] = info
    hub.files[f"/api/models/org/model/revision/{COMMIT}"] = info
    for name, content in FILES.items():
        for revision in ("main", COMMIT):
            hub.files[f"/org/model/resolve/{revision}/{name}"] = content
    tree = [
        {"type": "file", "path": name, "size": len(content), "oid": "0" * 40}
        for name, content in FILES.items()
    ]
    hub.files[f"/api/models/org/model/tree/{COMMIT}"] = json.dumps(tree).encode()
    hub.files["/api/models/org/model/tree/main"] = json.dumps(tree).encode()
    return hub


def test_a_hub_id_is_fetched_once_and_without_code(repository):
    assert not store.is_cached("org/model")
    folder = store.resolve("org/model", Said(), lambda: False)
    assert {file.name for file in folder.iterdir()} == {
        "config.json",
        "tokenizer.json",
        "model.safetensors",
    }
    assert store.is_cached("org/model")
    repository.asked.clear()
    assert store.resolve("org/model", Said(), lambda: False) == folder
    assert repository.asked == []


def test_a_cancelled_fetch_does_not_count_as_whole(repository):
    with pytest.raises(Cancelled):
        store.resolve("org/model", Said(), lambda: True)
    assert not store.is_cached("org/model")
