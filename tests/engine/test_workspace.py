"""The workspace's index in the engine: built beside the answers, and no token depends on it."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from drafters.workspace import WorkspaceIndex, build_index
from engine.core import Workspace
from engine.generation import generate
from engine.host import ModelHost
from engine.prefix import PrefixCache
from engine.workspace import indexes as module
from engine.workspace.indexes import WorkspaceIndexes
from tests.engine.test_generation import a_request, run
from tests.tiny import save_tiny_model

CODE = "def area(width, height):\n    return width * height\n"
WAIT = 60.0


class Adversary(WorkspaceIndexes):
    """Has another index ready each time: random tokens, mixed with the right ones."""

    def __init__(self, answer: list[int], vocabulary: int, seed: int) -> None:
        super().__init__(Path("none"))
        self._answer, self._vocabulary = answer, vocabulary
        self._random = random.Random(seed)

    def ready(self, workspace: Workspace) -> WorkspaceIndex | None:
        files = []
        for _ in range(20):
            tokens = list(self._answer)
            for _ in range(self._random.randrange(len(tokens) + 1)):
                tokens[self._random.randrange(len(tokens))] = self._random.randrange(
                    self._vocabulary
                )
            files.append(tokens)
        return build_index(files)


@pytest.fixture
def tree(tmp_path) -> Path:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a.py").write_text(CODE * 3)
    return tmp_path


@pytest.fixture(scope="module")
def tokenizer_file(tiny_qwen2, tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tiny_qwen2.tokenizer.save(str(file))
    return file


def text_with(target, request, indexes) -> str:
    prefix = PrefixCache(target.runner)
    events = list(generate(target, None, prefix, request, lambda: False, indexes))
    return "".join(getattr(event, "text", "") for event in events)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_workspace_never_changes_a_token(tiny_target, temperature) -> None:
    workspace = Workspace(("/w",), ("py",))
    for seed in range(4):
        request = a_request(temperature=temperature, seed=seed, workspace=workspace)
        plain, _, _ = run(tiny_target, replace(request, draft=False))
        answer = tiny_target.tokenizer.encode(plain, add_special_tokens=False).ids or [1]
        adversary = Adversary(answer, 200, seed)
        assert text_with(tiny_target, request, adversary) == plain


def test_an_index_is_built_of_the_files_and_then_ready(tiny_qwen2, tokenizer_file, tree) -> None:
    indexes = WorkspaceIndexes(tokenizer_file)
    workspace = Workspace((str(tree),), ("py",))
    assert indexes.ready(workspace) is None
    assert indexes.settle(WAIT)
    index = indexes.ready(workspace)
    assert index is not None
    expected = tiny_qwen2.tokenizer.encode(CODE * 3, add_special_tokens=False).ids
    assert list(index.tokens)[:-1] == expected
    assert indexes.bytes == index.bytes
    assert indexes.ready(replace_suffix(workspace)) is None
    indexes.close()
    assert indexes.ready(workspace) is None
    assert indexes.settle(WAIT)


def replace_suffix(workspace: Workspace) -> Workspace:
    return workspace._replace(suffixes=("js",))


def test_a_changed_file_is_indexed_anew_and_an_unchanged_one_not(tokenizer_file, tree) -> None:
    indexes = WorkspaceIndexes(tokenizer_file, refresh_seconds=0.0)
    workspace = Workspace((str(tree),), ("py",))
    indexes.ready(workspace)
    assert indexes.settle(WAIT)
    first = indexes.ready(workspace)
    assert indexes.settle(WAIT)
    assert first is not None
    assert indexes.ready(workspace) is first
    assert indexes.settle(WAIT)
    before = list(first.tokens)
    (tree / "b.py").write_text("import os\n")
    indexes.ready(workspace)
    assert indexes.settle(WAIT)
    second = indexes.ready(workspace)
    assert second is not None
    assert second is not first
    assert len(second.tokens) > len(first.tokens)
    assert list(first.tokens) == before  # whoever still drafts from it is not disturbed
    assert indexes.settle(WAIT)


def test_answers_run_while_their_workspace_is_indexed(tiny_qwen2, tokenizer_file, tree) -> None:
    indexes = WorkspaceIndexes(tokenizer_file, refresh_seconds=0.0)
    workspace = Workspace((str(tree),), ("py",))
    request = a_request(workspace=workspace)
    plain, _, _ = run(tiny_qwen2, replace(request, draft=False))
    stop = threading.Event()

    def change_files() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            (tree / "b.py").write_text(f"x = {number}\n" * (number % 50))
            indexes.ready(workspace)
            indexes.settle(WAIT)

    changing = threading.Thread(target=change_files)
    changing.start()
    try:
        built = set()
        while len(built) < 3:
            assert text_with(tiny_qwen2, request, indexes) == plain
            indexes.settle(0.5)  # the reader has the lowest priority: let it have some time
            built.add(id(indexes.ready(workspace)))
    finally:
        stop.set()
        changing.join()
        indexes.close()
    assert indexes.settle(WAIT)


def test_a_request_to_the_engine_has_its_workspace_indexed_for_the_next(
    tree, tmp_path_factory
) -> None:
    host = ModelHost("cpu", "float32", str(save_tiny_model(tmp_path_factory.mktemp("model"))))
    workspace = Workspace((str(tree),), ("py",))
    request = a_request(model="", max_tokens=4, workspace=workspace)
    try:
        list(host.generate(replace(request, workspace=None), lambda: False))
        indexes = host._indexes
        assert indexes is not None
        assert indexes.bytes == 0
        list(host.generate(replace(request, draft=False), lambda: False))
        assert indexes.settle(0)  # a plain answer needs none
        list(host.generate(request, lambda: False))
        assert indexes.settle(WAIT)
        assert indexes.bytes > 0
    finally:
        host.close()
    assert indexes.bytes == 0


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(1)",
        "print('no fingerprint')",
        "import sys; sys.stdout.write('f\\nnot an index')",
        "import os; os.kill(os.getpid(), 9)",
    ],
)
def test_a_reader_that_fails_leaves_answers_without_an_index(
    tokenizer_file, monkeypatch, code
) -> None:
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-c", code))
    indexes = WorkspaceIndexes(tokenizer_file)
    workspace = Workspace(("/nowhere",), ("py",))
    assert indexes.ready(workspace) is None
    assert indexes.settle(WAIT)
    assert indexes.ready(workspace) is None
    assert indexes.settle(WAIT)


def test_closing_ends_a_reader_that_hangs(tokenizer_file, monkeypatch) -> None:
    monkeypatch.setattr(module, "COMMAND", (sys.executable, "-c", "import time; time.sleep(600)"))
    indexes = WorkspaceIndexes(tokenizer_file)
    assert indexes.ready(Workspace(("/nowhere",), ("py",))) is None
    indexes.close()
    assert indexes.settle(WAIT)


def test_the_index_used_longest_ago_goes_first(tokenizer_file, tree, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_INDEXES", 2)
    indexes = WorkspaceIndexes(tokenizer_file)
    one, two, three = (Workspace((str(tree),), ("py", ending)) for ending in ("a", "b", "c"))
    for workspace in (one, two):
        indexes.ready(workspace)
    assert indexes.settle(WAIT)
    assert indexes.ready(one) is not None
    indexes.ready(three)
    assert indexes.settle(WAIT)
    assert indexes.ready(one) is not None
    assert indexes.ready(two) is None
    indexes.close()
    assert indexes.settle(WAIT)
