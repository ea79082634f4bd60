from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import ready
from engine.core import GenerationRequest, Message
from engine.int8.linear import is_supported
from engine.int8.weights import int8_folder
from tests.engine.conftest import load_on_one_thread
from tests.tiny import save_tiny_model

pytestmark = pytest.mark.skipif(
    not is_supported(), reason="this torch has no FBGEMM kernels, so there is no int8 runner here"
)

TEXT = "def café(x):\n\treturn 'e\u0301 <|im_end|> 😀'\n"
REQUEST = GenerationRequest(
    "m", (Message("system", "brief"), Message("user", TEXT), Message("assistant", "```\n")), True
)


def loaded_twice(folder: Path, kind: str = "qwen2"):
    save_tiny_model(folder, kind)
    return load_on_one_thread("m", folder, "int8"), load_on_one_thread("m", folder, "int8")


def kept_file(folder: Path) -> Path:
    return int8_folder(folder) / "ready.json"


@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_what_is_kept_gives_the_same_model(tmp_path: Path, kind: str) -> None:
    first, second = loaded_twice(tmp_path / "m", kind)
    assert kept_file(tmp_path / "m").parent.stat().st_mode & 0o077 == 0
    assert first.end_tokens == second.end_tokens
    assert first.chat.encode_prompt(REQUEST) == second.chat.encode_prompt(REQUEST)
    assert first.chat.encode_source(TEXT, "\n```") == second.chat.encode_source(TEXT, "\n```")
    assert first.tokenizer.to_str() == second.tokenizer.to_str()
    assert first.runner.max_context == second.runner.max_context
    rows = [one.runner.verify(one.runner.new_cache(9), [3, 1, 4, 1, 5]) for one in (first, second)]
    assert (rows[0] == rows[1]).all()


def change_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages[-1].content }}!")


def change_end(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 11]}))


def test_a_changed_template_is_read_anew(tmp_path: Path) -> None:
    first, _ = loaded_twice(tmp_path / "m")
    change_template(tmp_path / "m")
    request = GenerationRequest("m", (Message("user", "hi"),))
    changed = load_on_one_thread("m", tmp_path / "m", "int8").chat.encode_prompt(request)
    assert first.tokenizer.decode(changed, skip_special_tokens=False) == "hi!"


def test_changed_end_tokens_are_read_anew(tmp_path: Path) -> None:
    first, _ = loaded_twice(tmp_path / "m")
    change_end(tmp_path / "m")
    changed = load_on_one_thread("m", tmp_path / "m", "int8")
    assert {7, 11} <= changed.end_tokens
    assert not {7, 11} <= first.end_tokens


def edited(change: Callable[[str], str]) -> Callable[[Path], object]:
    return lambda file: file.write_text(change(file.read_text("utf-8")), "utf-8")


@pytest.mark.parametrize(
    "damage",
    {
        "cut off": edited(lambda text: text[:-9]),
        "another end": edited(lambda text: text.replace('"end_tokens": [', '"end_tokens": [5, ')),
        "not text": lambda file: file.write_bytes(b"\xff\x00" * 50),
        "empty": lambda file: file.write_bytes(b""),
        "gone": Path.unlink,
    }.items(),
    ids=lambda case: case[0],
)
def test_what_is_kept_is_not_used_where_it_is_damaged(tmp_path: Path, damage) -> None:
    first, _ = loaded_twice(tmp_path / "m")
    file = kept_file(tmp_path / "m")
    whole = file.read_bytes()
    damage[1](file)
    assert ready.read(file.parent, tmp_path / "m") is None
    again = load_on_one_thread("m", tmp_path / "m", "int8")
    assert again.end_tokens == first.end_tokens
    assert file.read_bytes() == whole


def test_a_full_disk_costs_only_a_slower_start(tmp_path: Path, monkeypatch, caplog) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    save_tiny_model(tmp_path / "m", "qwen2")
    monkeypatch.setattr(ready, "_file", refuse)
    loaded = load_on_one_thread("m", tmp_path / "m", "int8")
    assert loaded.chat.encode_prompt(REQUEST)
    assert "could not be kept" in caplog.text
