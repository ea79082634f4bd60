"""Damaged model folders: each is refused with a sentence, and never loaded half."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from engine.core import EngineError
from engine.int8.linear import is_supported
from engine.int8.weights import int8_folder
from engine.loader import load_model
from tests.engine.conftest import load_on_one_thread
from tests.tiny import save_tiny_model

DTYPES = ["float32"] + ["int8"] * is_supported()


def _config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))

    return change


def _write(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(data)


def _cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


def _drop_tokenizer(folder: Path) -> None:
    for file in folder.glob("tokenizer*"):
        file.unlink()


def _drop_weight(folder: Path) -> None:
    file = folder / "model.safetensors"
    kept = {n: t for n, t in load_file(file).items() if "layers.1.mlp.up" not in n}
    save_file(kept, file, metadata={"format": "pt"})


DAMAGES = {
    "weights cut off": _cut,
    "no weights in the file": _write("model.safetensors", b""),
    "a weight missing": _drop_weight,
    "empty config": _write("config.json", b""),
    "config without a type": _write("config.json", b"{}"),
    "another width": _config(hidden_size=128),
    "another vocabulary": _config(vocab_size=500),
    "layers that contradict each other": _config(num_hidden_layers=3),
    "garbage for a tokenizer": _write("tokenizer.json", b"\x00\xff\xfe" * 100),
    "an empty tokenizer": _write("tokenizer.json", b"{}"),
    "no tokenizer": _drop_tokenizer,
    "no chat template": lambda folder: (folder / "chat_template.jinja").unlink(),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused(tmp_path: Path, damage: str, dtype: str) -> None:
    folder = save_tiny_model(tmp_path / "m")
    DAMAGES[damage](folder)
    with pytest.raises(EngineError) as caught:
        load_model("mine", folder, "cpu", dtype)
    assert caught.value.code == "unsupported_model"
    assert re.fullmatch(r"[^\n]*[^.\n]\.", caught.value.message)


def test_a_damaged_chat_template_is_a_trouble_of_the_model(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "m")
    (folder / "chat_template.jinja").write_text("{% for %}")
    with pytest.raises(EngineError, match="chat template is damaged") as caught:
        load_model("mine", folder, "cpu", "float32")
    assert caught.value.code == "unsupported_model"


@pytest.mark.parametrize("known_type", [True, False])
def test_code_of_a_model_folder_is_never_run(tmp_path: Path, known_type: bool) -> None:
    folder = save_tiny_model(tmp_path / "m")
    ran = tmp_path / "ran"
    (folder / "evil.py").write_text(f"open({str(ran)!r}, 'w')\nraise SystemExit\n")
    classes = {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}
    _config(auto_map=classes, **({} if known_type else {"model_type": "evil"}))(folder)
    file = folder / "tokenizer_config.json"
    tokenizer = {
        **json.loads(file.read_text()),
        "auto_map": {"AutoTokenizer": ["evil.T", "evil.T"]},
    }
    file.write_text(json.dumps(tokenizer))
    if known_type:
        load_on_one_thread("mine", folder, "float32")
    else:
        with pytest.raises(EngineError) as caught:
            load_model("mine", folder, "cpu", "float32")
        assert caught.value.code == "unsupported_model"
    assert not ran.exists()


@pytest.mark.skipif(not is_supported(), reason="there is no int8 runner here")
@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"cut"), Path.unlink])
def test_damaged_int8_weights_are_made_again(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    folder = save_tiny_model(tmp_path / "m")
    load_on_one_thread("mine", folder, "int8")
    (file,) = int8_folder(folder).glob("*.safetensors")
    whole = file.read_bytes()
    damage(file)
    load_on_one_thread("mine", folder, "int8")
    assert file.read_bytes() == whole
