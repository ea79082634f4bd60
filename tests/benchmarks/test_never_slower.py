"""Two answers beside each other, and what is told of them; how fast they are, is not tested."""

from __future__ import annotations

import json

import pytest

from benchmarks import never_slower, side_by_side
from benchmarks.side_by_side import Answer, OnePass, Pair, answer_both
from engine import generation
from engine.core import Finished, GenerationStats, TextDelta
from engine.host import ModelHost
from engine.window import WindowPolicy
from tests.tiny import save_tiny_model


@pytest.fixture
def tiny(tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("REDRAFT_CACHE_DIR", str(tmp_path / "cache"))
    return str(save_tiny_model(tmp_path / "tiny"))


class Scripted:
    """A generator whose answers take a second a token, with drafts `slower` times that."""

    def __init__(self, slower: float, texts: tuple[str, str] = ("a", "a")) -> None:
        self.slower = slower
        self.texts = texts
        self.order: list[bool] = []

    def generate(self, request, is_cancelled):
        second = self.slower if request.draft else 1.0
        for token in range(1, request.max_tokens + 1):
            self.order.append(request.draft)
            yield TextDelta(self.texts[request.draft], (), token, token * second)
        tokens = request.max_tokens
        yield Finished("length", GenerationStats(tokens=tokens, decode_seconds=tokens * second))


def test_both_kinds_are_compared_and_explained_and_texts_are_seen_to_be_equal(tiny, capsys) -> None:
    host = ModelHost("cpu", "float32", tiny)
    options = ["--model", tiny, "--runs", "1", "--tokens", "12", "--part", "1/4", "--json"]
    assert never_slower.main(options, host) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["texts_equal"]
    assert len(found["medians"]["values"]) == 2
    assert found["worst"] == max(found["medians"]["values"])
    assert err.count("  with drafts: 12 tokens; ") == 2
    assert err.count("  without: 12 tokens; drafters 0.00 ms a token; passes: 12 of 1 rows (") == 2


def test_passes_and_the_drafters_time_are_counted_for_the_answer_they_belong_to(tiny) -> None:
    make_drafter = generation._drafter
    pair = answer_both(ModelHost("cpu", "float32", tiny), tiny, "x = x = x =", 24, False)
    for answer in pair:
        assert answer.stats
        assert len(answer.passes) == answer.stats.passes
        assert sum(p.rows - 1 for p in answer.passes) == answer.stats.drafted
    assert pair.plain.drafter_seconds == 0.0
    assert pair.drafted.drafter_seconds > pair.drafted.begin_seconds > 0.0
    assert generation._drafter is make_drafter
    assert generation.WindowPolicy is WindowPolicy


@pytest.mark.parametrize("plain_first", [False, True])
def test_stretches_alternate_so_that_neither_is_always_first(plain_first, monkeypatch) -> None:
    monkeypatch.setattr(side_by_side, "STRETCH", 2)
    host = Scripted(1.0)
    answer_both(host, "m", "p", 8, plain_first)
    # Both have one token when the stretches begin.
    stretches = "".join("D" if draft else "P" for draft in host.order[2:])
    assert stretches == ("PDDDPPPPDDDDPP" if plain_first else "DPPPDDDDPPPPDD")


@pytest.mark.parametrize(
    ("slower", "options", "code"),
    [(1.01, ["--check"], 0), (1.03, ["--check"], 1), (1.03, [], 0)],
)
def test_the_exit_code_tells_a_median_over_the_aim_where_asked(
    slower, options, code, capsys
) -> None:
    arguments = ["--runs", "2", "--tokens", "8", *options]
    assert never_slower.main(arguments, Scripted(slower)) == code
    word = "reached" if slower < never_slower.AIM else "MISSED"
    assert f"worst {slower:.3f}; aim: at most 1.02: {word}" in capsys.readouterr().out


def test_what_longer_passes_gain_is_told_beside_single_ones() -> None:
    passes = [OnePass(1, 0.1), OnePass(1, 0.1), OnePass(4, 0.15, 2), OnePass(2, 0.12, 0)]
    drafted = Answer(iter(()), passes=passes, tokens=6, drafter_seconds=0.006)
    plain = Answer(iter(()), passes=[OnePass(1, 0.1)], tokens=6)
    # 3 tokens in 0.15 s and one in 0.12 s, where one takes 0.1 s: 0.13 s for 6 tokens.
    assert never_slower.explained([Pair(drafted, plain)]) == [
        "with drafts: 6 tokens; drafters 1.00 ms a token; passes: 2 of 1 rows (100 ms), 1 of 2 "
        "rows (120 ms), 1 of 4 rows (150 ms); 2 of 4 drafted tokens right, which gained 21.7 ms "
        "a token",
        "without: 6 tokens; drafters 0.00 ms a token; passes: 1 of 1 rows (100 ms)",
    ]


def test_texts_that_differ_are_always_a_failure(capsys) -> None:
    assert never_slower.main(["--runs", "1"], Scripted(1.0, ("a", "b"))) == 1
    assert capsys.readouterr().out.endswith("texts equal: NO\n")


def test_preparing_the_drafters_counts_against_drafts() -> None:
    drafted = Answer(iter(()), tokens=10, seconds=10.0, begin_seconds=1.0)
    plain = Answer(iter(()), tokens=10, seconds=10.0, passes=[OnePass(1, 1.0)])
    assert Pair(drafted, plain).ratio == pytest.approx(1.1)
