"""The benchmarks run and print; how fast anything is, is never tested."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import exactness, perplexity
from benchmarks.common import edits, machine, part, part_of, spread
from engine.eager import EagerRunner
from engine.int8.linear import is_supported
from tests.tiny import save_tiny_model


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REDRAFT_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def own_edits(tmp_path, monkeypatch) -> Path:
    items = [{"before": f"def f{i}(x):\n    return x + {i}\n" * 30} for i in range(9)]
    file = tmp_path / "edits" / "dev.jsonl"
    file.parent.mkdir()
    file.write_text("\n".join(map(json.dumps, items)))
    monkeypatch.setenv("REDRAFT_EDITS", str(file.parent))
    return file


def test_the_median_comes_with_its_spread() -> None:
    assert spread([3.0, 1.0, 2.0], " s", 1) == "2.0 s (1.0 to 3.0)"


def test_the_machine_is_named_without_its_name() -> None:
    import platform

    assert "cores" in machine()
    assert platform.node() not in machine()


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 9])
def test_the_parts_of_a_list_are_all_of_it_each_once(parts) -> None:
    items = list(range(7))
    assert [i for n in range(parts) for i in part_of(items, part(f"{n + 1}/{parts}"))] == items


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b"])
def test_a_part_that_is_none_is_refused(text) -> None:
    with pytest.raises(ValueError):
        part(text)


def test_edits_are_read_from_the_folder_that_is_named(own_edits) -> None:
    assert len(edits()) == 9
    own_edits.unlink()
    with pytest.raises(SystemExit, match="REDRAFT_EDITS"):
        edits()


def test_files_are_spread_over_the_list(own_edits) -> None:
    first, second, third = perplexity.chosen_files(3)
    assert [text.split("(")[0] for text in (first, second, third)] == ["def f0", "def f3", "def f6"]


@pytest.mark.skipif(not is_supported(), reason="this torch has no FBGEMM kernels")
def test_perplexity_reads_the_files_with_both_models(own_edits, tmp_path, capsys) -> None:
    folder = str(save_tiny_model(tmp_path / "tiny", spread=0.02))
    perplexity.main(["--model", folder, "--files", "2", "--tokens", "50"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("perplexity over 98 tokens of 2 files: int8 ")
    ratio = float(last.split("ratio ")[1].split(";")[0])
    assert 0.9 < ratio < 1.1


def test_exactness_compares_with_the_target_alone(own_edits, tmp_path, capsys) -> None:
    text = own_edits.read_text().replace('"before"', '"instruction": "add one", "before"')
    own_edits.write_text(text)
    folder = str(save_tiny_model(tmp_path / "tiny"))
    options = ["--model", folder, "--items", "3", "--tokens", "30", "--dtype", "float32"]
    assert exactness.main(options) == 0
    assert "3 of 3 items the same over" in capsys.readouterr().out.splitlines()[-1]


def test_exactness_sees_a_token_that_differs(own_edits, tmp_path, capsys, monkeypatch) -> None:
    text = own_edits.read_text().replace('"before"', '"instruction": "add one", "before"')
    own_edits.write_text(text)
    # A runner whose rows do depend on the window: the draft's length shifts the logits.
    verify = EagerRunner.verify

    def shifted(self, cache, tokens, parents=()):
        return verify(self, cache, tokens, parents).roll(len(tokens) - 1, dims=-1)

    monkeypatch.setattr(EagerRunner, "verify", shifted)
    folder = str(save_tiny_model(tmp_path / "tiny"))
    options = ["--model", folder, "--items", "1", "--tokens", "30", "--dtype", "float32"]
    assert exactness.main(options) == 1
    assert "DIFFERENT" in capsys.readouterr().out
