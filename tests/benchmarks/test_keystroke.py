"""The benchmark of keystrokes: it types while an answer streams, and counts right."""

from __future__ import annotations

import json

import pytest

from benchmarks import keystroke


def test_the_99th_of_a_hundred_is_the_99th_percentile() -> None:
    assert keystroke.p99([float(n) for n in range(100, 0, -1)]) == 99.0
    assert keystroke.p99([5.0]) == 5.0


def test_the_long_file_has_the_lines_that_were_asked_for() -> None:
    text = keystroke.long_file(1_000)
    assert text.count("\n") == 1_000
    assert text.split("\n\n\n")[0].count("\n") == keystroke.FUNCTION_LINES - 1


def test_every_time_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert keystroke.main(["--lines", "1000", "--keys", "20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["keys"] == 20
    assert 0 < found["alone_p99_ms"] < 1000
    assert 0 < found["streaming_p99_ms"] < 1000
    assert 0 < found["span_ms"] < 250
