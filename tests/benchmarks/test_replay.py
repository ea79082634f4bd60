"""The replay benchmark: what it counts, by hand; its peers; its input."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import record
from benchmarks.replay import answers, page
from benchmarks.replay.__main__ import NAMES, main
from benchmarks.replay.git_edits import mine
from benchmarks.replay.items import BadInput, Item, items_of, load_tokens
from benchmarks.replay.measure import EDIT, FIRST, FULL, NEW, accepted_path, replay
from benchmarks.replay.neighbours import files_beside
from benchmarks.replay.oracle import Oracle
from benchmarks.replay.peers import (
    FirstMatch,
    LongestMatch,
    NgramMap,
    Nothing,
    Reuse,
    TransformersLookup,
)
from drafters.core import Draft, DraftContext
from tests.drafters.words import Words
from tests.tiny import save_tiny_model

BEFORE = "def area(width, height):\n    return width * height\n"
AFTER = "def area(width, depth):\n    return width * depth\n"


class Scripted:
    """Proposes drafts from a list, then nothing."""

    def __init__(self, *drafts: Draft) -> None:
        self._drafts = list(drafts)
        self.seen: list[int] = []

    def begin(self, context: DraftContext) -> None:
        self.seen = []

    def propose(self, limit: int) -> Draft:
        return self._drafts.pop(0) if self._drafts else Draft((), "none")

    def observe(self, accepted, next_token) -> None:
        self.seen += [*accepted, next_token]


def item(reference: list[int], prompt: list[int] | None = None, source=()) -> Item:
    return Item("x", {}, DraftContext(prompt or [100], source), reference)


def draft(tokens: list[int], parents=()) -> Draft:
    return Draft(tokens, "source", 0.5, None, parents)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("replay"))


@pytest.fixture
def data(tmp_path) -> Path:
    file = tmp_path / "edits.jsonl"
    edit = {"id": "a", "language": "python", "instruction": "rename height to depth",
            "before": BEFORE, "after": AFTER, "kind": "rename", "copy_ratio": 0.5}  # fmt: skip
    file.write_text("".join(json.dumps({**edit, "id": name}) + "\n" for name in "abc"))
    return file


def test_passes_rows_and_causes_are_counted_as_by_hand() -> None:
    drafter = Scripted(
        draft([1, 2, 9, 9]),  # two right, then 3 of the target's own
        draft([4, 5, 6, 7]),  # all right, then 8: the window was full
        draft([5]),  # nothing, but just behind an accepted one
        draft([]),
        draft([5]),
    )
    found = replay(drafter, item([1, 2, 3, 4, 5, 6, 7, 8, 20, 21, 22, 23]), 4)
    assert drafter.seen == [1, 2, 3, 4, 5, 6, 7, 8, 20, 21, 22, 23]
    assert (found.tokens, found.passes, found.drafted) == (12, 6, 10)
    assert found.accepted_by_origin == {"source": 6}
    assert found.causes == {FIRST: 1, FULL: 1, EDIT: 2, NEW: 2}


@pytest.mark.parametrize(
    ("tokens", "parents", "path"),
    [
        ([1, 2, 3], (), [0, 1, 2]),
        ([1, 9, 3], (), [0]),
        ([9, 9, 1, 2], (-1, 0, -1, 2), [2, 3]),
        ([1, 9, 2, 3], (-1, 0, 0, 2), [0, 2, 3]),
        ([1, 1, 2], (-1, -1, 1), [0]),  # of equals the first
        ([1, 2, 3, 4], (), [0, 1, 2]),  # the end is emitted, not accepted
    ],
)
def test_the_longest_path_that_the_reference_follows_is_accepted(tokens, parents, path) -> None:
    assert accepted_path(draft(tokens, parents), [1, 2, 3, 4], 0) == path


def test_all_rows_of_a_tree_are_drafted_and_its_branches_named() -> None:
    found = replay(Scripted(draft([9, 1, 2], (-1, -1, 1))), item([1, 2, 3]), 8)
    assert (found.passes, found.drafted) == (1, 3)
    assert found.drafted_by_origin == {"source": 1, "branch": 2}
    assert found.accepted_by_origin == {"branch": 2}


def other_edit(name: str, repo: str, path: str, before: str, language: str = "python") -> dict:
    source = {"repo": repo, "path": path}
    return {"id": name, "language": language, "source": source, "before": before,
            "after": f"never {name}", "instruction": "x"}  # fmt: skip


def test_the_workspace_of_an_edit_is_the_other_edits_of_its_repository_and_language() -> None:
    edits = [
        other_edit("a", "r", "one.py", "one"),
        other_edit("b", "r", "two.py", "two"),
        other_edit("c", "r", "one.py", "one later"),  # the same path: it may hold the answer
        other_edit("d", "r", "three.py", "two"),  # the same text: it counts once
        other_edit("e", "other", "two.py", "elsewhere"),
        other_edit("f", "r", "two.js", "script", "javascript"),
        {**other_edit("g", "r", "two.py", "x"), "source": None},
        {**other_edit("h", "r", "two.py", "x"), "workspace": ["its", "own"]},
    ]
    words = Words()
    found = [
        [words.text(tokens) for tokens in beside] for beside in files_beside(edits, words.tokenize)
    ]
    assert found == [
        ["two", "x"], ["one", "one later"], ["two", "x"], ["one", "one later", "x"],
        [], [], [], ["its", "own"],
    ]  # fmt: skip


def test_more_than_the_window_is_a_fault() -> None:
    with pytest.raises(AssertionError, match="proposed 3 tokens"):
        replay(Scripted(draft([1, 2, 3])), item([1, 2, 3]), 2)


REPEATED = [1, 2, 3, 4, 5, 1, 2, 3, 7, 8, 1, 2, 3]


@pytest.mark.parametrize(
    ("peer", "tokens"),
    [
        (Nothing(), []),
        (FirstMatch(), [4, 5, 1, 2]),  # the first occurrence
        (LongestMatch(), [7, 8, 1, 2]),  # of equally long ones the latest
        (NgramMap(size=3), [7, 8, 1, 2]),
        (NgramMap(size=12), []),
        (TransformersLookup(), [4, 5, 1, 2]),
    ],
)
def test_a_look_up_finds_what_its_project_says(peer, tokens) -> None:
    peer.begin(DraftContext(REPEATED))
    assert list(peer.propose(4).tokens) == tokens


def test_the_reuse_rule_takes_the_source_up_again_after_seven_equal_tokens() -> None:
    source = list(range(10, 40))
    peer = Reuse()
    peer.begin(DraftContext([1], source))
    assert list(peer.propose(5).tokens) == source[:5]
    peer.observe(source[:2], 99)
    assert not peer.propose(5).tokens
    peer.observe([], source[2])
    for token in source[3:9]:
        assert not peer.propose(5).tokens
        peer.observe([], token)
    assert list(peer.propose(5).tokens) == source[9:14]


def test_the_oracle_copies_all_and_guesses_nothing() -> None:
    source, reference = [1, 2, 3, 4, 5, 6], [1, 2, 3, 90, 91, 5, 6, 7]
    found = replay(Oracle(reference), item(reference, source=source), 8)
    # 1 2 3 and 90; 91; 5 6 and the end.
    assert (found.passes, found.accepted_by_origin) == (3, {"source": 5})


def test_the_reference_is_the_answer_with_its_fence_and_end(folder, data) -> None:
    tokens = load_tokens(str(folder))
    (first, *_) = items_of([json.loads(data.read_text().splitlines()[0])], tokens)
    text = b"".join(map(tokens.pieces, first.reference)).decode()
    assert text == f"{AFTER}\n```<|im_end|>"
    prompt = b"".join(map(tokens.pieces, first.context.prompt)).decode()
    assert BEFORE in prompt
    assert prompt.endswith("```python\n")
    assert first.groups == {"kind": "rename", "language": "python", "copy_ratio": "0.5 to 0.8"}


def test_json_has_the_promised_figures_and_is_the_same_every_time(folder, data, capsys) -> None:
    command = ["--data", str(data), "--tokenizer", str(folder), "--drafter", "cascade,none",
               "--window", "8", "--json", "--by", "kind,copy_ratio"]  # fmt: skip
    runs = []
    for _ in range(2):
        assert main(command) == 0
        runs.append(json.loads(capsys.readouterr().out))
    plain = runs[0]["none"]
    assert plain["tokens_per_pass"] == plain["median"] == plain["p10"] == 1.0
    assert plain["passes"] == plain["tokens"] == 3 * plain["by_kind"]["rename"]["tokens"] / 3
    assert plain["drafted"] == 0
    ours = runs[0]["cascade"]
    assert ours["tokens"] == plain["tokens"]
    assert ours["tokens_per_pass"] > 2.0
    assert ours["microseconds_per_proposal"] > 0.0
    timed = {"microseconds_per_proposal", "p99_microseconds", "begin_ms_per_1000_tokens"}
    same = [{k: v for k, v in run["cascade"].items() if k not in timed and k[:3] != "by_"}
            for run in runs]  # fmt: skip
    assert same[0] == same[1]


def test_people_get_a_table_and_the_worst_items(folder, data, capsys) -> None:
    names = ",".join(name for name in NAMES if name != "suffix")
    assert main(["--data", str(data), "--tokenizer", str(folder), "--limit", "2",
                 "--drafter", names, "--by", "kind", "--worst", "1"]) == 0  # fmt: skip
    out = capsys.readouterr().out
    for words in ("tokens/pass", "cascade by kind", "passes: first pass", "worst of oracle"):
        assert words in out


def commit(folder: Path, message: str, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    git = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x"]
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", message], check=True)


def test_edits_are_mined_from_a_repository(folder, tmp_path, capsys) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    subprocess.run(["git", "-C", str(repository), "init", "-q"], check=True)
    body = "".join(f"    step_{i} = {i}\n" for i in range(12))
    text = f"import os\n\n\ndef first():\n{body}\n\ndef second():\n{body}"
    commit(repository, "begin", a=text)
    commit(repository, "rename step_5", a=text.replace("step_5", "fifth", 1))
    commit(repository, "two files", a=text, b=text)
    short = "x = 1\n"
    commit(repository, "too short", c=short)
    commit(repository, "still too short", c="x = 2\n")
    assert main(["--git", str(repository), "--tokenizer", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["cascade"]
    assert found["items"] == 1
    edit = mine(str(repository), None)[0]
    assert edit["workspace"] == []  # at that commit there was no other file
    # One function, and not the other, which is as long.
    assert 0 < found["tokens"] < len(load_tokens(str(folder)).tokenize(text))


def test_a_mined_edit_brings_the_other_files_of_its_parent_the_nearest_first(tmp_path) -> None:
    subprocess.run(["git", "-C", str(tmp_path), "init", "-q"], check=True)
    body = "".join(f"    step_{i} = {i}\n" for i in range(12))
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "b.py").write_text("near = 1\n")
    (tmp_path / "two" / "c.py").write_text("far = 1\n")
    (tmp_path / "one" / "d.js").write_text("script\n")
    commit(tmp_path, "begin", **{"one/a": f"def f():\n{body}"})
    commit(tmp_path, "rename step_5", **{"one/a": f"def f():\n{body}".replace("step_5", "fifth")})
    commit(tmp_path, "later", **{"one/b": "later = 1\n"})
    assert mine(str(tmp_path), None)[0]["workspace"] == ["near = 1\n", "far = 1\n"]


def test_with_and_without_the_workspace_are_measured_in_one_run(folder, tmp_path, capsys) -> None:
    new = "def volume(width, depth, height):\n    return checked(width * depth * height)\n"
    edits = [
        {**other_edit("a", "r", "one.py", BEFORE), "after": BEFORE + new},
        {**other_edit("b", "r", "two.py", new), "after": new},
    ]
    file = tmp_path / "edits.jsonl"
    file.write_text("".join(json.dumps(edit) + "\n" for edit in edits))
    names = "cascade,cascade+workspace,chain,chain+workspace"
    given = ["--data", str(file), "--tokenizer", str(folder), "--drafter", names, "--json"]
    assert main(given) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cascade+workspace"]["passes"] < found["cascade"]["passes"]
    assert found["chain+workspace"]["passes"] < found["chain"]["passes"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--data", "missing.jsonl"], "missing.jsonl cannot be read"),
        (["--data", "{broken}"], "Line 2 of broken.jsonl is no edit"),
        (["--data", "{data}", "--drafter", "magic"], "There is no drafter 'magic'"),
        (["--data", "{data}", "--by", "size"], "There is no group 'size'"),
        (["--data", "{data}", "--tokenizer", "{nowhere}"], "There is no tokenizer for"),
        (["--git", "{nowhere}"], "git cannot read"),
    ],
)
def test_bad_input_is_one_sentence(arguments, says, folder, data, tmp_path, capsys) -> None:
    (tmp_path / "broken.jsonl").write_text(data.read_text().splitlines()[0] + "\n{nonsense\n")
    names = {"data": data, "broken": tmp_path / "broken.jsonl", "nowhere": tmp_path / "nowhere"}
    given = [argument.format(**names) for argument in arguments]
    if "--tokenizer" not in given:
        given += ["--tokenizer", str(folder)]
    assert main(given) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


def test_the_page_is_made_by_one_command_and_is_the_same_every_time(folder, data, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    made = []
    for name in ("one", "two"):
        docs = tmp_path / name
        assert page.main(["--data", str(data), "--tokenizer", str(folder),
                          "--docs", str(docs)]) == 0  # fmt: skip
        made.append((docs / "drafters.md", docs / "images" / "drafters.svg"))
    texts = [[file.read_text() for file in files] for files in made]
    assert texts[0] == texts[1]
    assert "| redraft | " in texts[0][0]
    assert "over 3 edits" in texts[0][0]
    assert str(tmp_path) not in texts[0][0]


def test_a_targets_own_answers_are_recorded_once_and_replayed(
    folder, data, tmp_path, capsys, monkeypatch
) -> None:
    monkeypatch.setenv("REDRAFT_CACHE_DIR", str(tmp_path / "cache"))
    out = tmp_path / "answers.jsonl"
    command = ["--data", str(data), "--out", str(out), "--model", str(folder)]
    assert record.main([*command, "--items", "1"]) == 0
    first = out.read_text()
    assert record.main([*command, "--items", "2"]) == 0
    assert out.read_text().startswith(first)
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["a", "b"]
    assert "tokens in" in capsys.readouterr().out

    # A random model never closes its fence: say that it did.
    lines = [{**json.loads(line), "text": BEFORE, "reason": "stop"} for line in first.splitlines()]
    whole = tmp_path / "whole.jsonl"
    answers.append(whole, lines[0], {"model": "m"})
    arguments = ["--data", str(data), "--tokenizer", str(folder), "--drafter", "oracle", "--json"]
    assert main([*arguments, "--answers", str(whole)]) == 0
    found = json.loads(capsys.readouterr().out)["oracle"]
    # Nothing was changed, so it is one copy and the end.
    assert (found["items"], found["passes"]) == (1, 1)


def test_answers_that_are_not_what_was_recorded_are_refused(data, tmp_path, folder, capsys) -> None:
    file = tmp_path / "answers.jsonl"
    answer = {"id": "a", "text": AFTER, "reason": "length"}
    answers.append(file, answer, {"model": "m", "edits": "1"})
    arguments = ["--data", str(data), "--tokenizer", str(folder), "--answers", str(file)]
    assert main(arguments) == 2
    assert "None of these edits has a whole recorded answer" in capsys.readouterr().err
    for made_by, says in (({"model": "n"}, "another model"), ({"edits": "2"}, "another edits")):
        with pytest.raises(BadInput, match=says):
            answers.read(file, made_by)
    file.write_text(file.read_text().replace("depth", "breadth"))
    assert main(arguments) == 2
    assert "was changed since it was recorded" in capsys.readouterr().err
    file.write_text("{}")
    assert main(arguments) == 2
    assert "holds no recorded answers" in capsys.readouterr().err


def test_a_draft_model_is_replayed_beside_the_drafters_without_one(tmp_path, capsys) -> None:
    folder = save_tiny_model(tmp_path / "tiny")
    data = tmp_path / "edits.jsonl"
    edit = {"id": "a", "instruction": "x", "language": "python", "before": BEFORE, "after": AFTER}
    data.write_text(json.dumps(edit) + "\n", "utf-8")
    options = ["--data", str(data), "--tokenizer", str(folder), "--json"]
    assert main([*options, "--draft-model", str(folder), "--drafter", "cascade,ngram"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) == {"cascade", "ngram", f"cascade + {folder}", "draft_model"}
    assert printed["cascade"]["tokens"] == printed[f"cascade + {folder}"]["tokens"]
    assert printed["draft_model"]["passes"] > 0
    assert printed["draft_model"]["rows"] >= printed["draft_model"]["passes"]
    # A model dearer than what it could save is never run.
    assert main([*options, "--draft-model", str(folder), "--draft-cost", "9"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["draft_model"]["passes"] == 0
    assert printed["cascade"]["passes"] == printed[f"cascade + {folder}"]["passes"]
    assert main([*options, "--draft-model", "no/such-folder-here"]) == 2
