from __future__ import annotations

import pytest

import engine.__main__
import engine.server.lifecycle


@pytest.fixture
def started(monkeypatch):
    """Start `python -m engine` as far as its generator, which is returned."""
    generators = []

    def run(make_generator, options) -> int:
        generators.append(make_generator())
        return 0

    monkeypatch.delenv(engine.__main__.PREFIX_VARIABLE, raising=False)
    monkeypatch.setattr(engine.__main__, "limit_spinning", lambda: None)
    monkeypatch.setattr(engine.server.lifecycle, "run", run)

    def start(*arguments: str):
        assert engine.__main__.main(list(arguments)) == 0
        return generators.pop()

    return start


@pytest.mark.parametrize(
    ("variable", "option", "budget"),
    [
        (None, None, None),
        ("", None, None),
        ("0", None, 0),
        ("64", None, 64 << 20),
        ("64", "0.5", 1 << 19),
        (None, "0", 0),
        ("many", "7", 7 << 20),
    ],
)
def test_the_option_goes_before_the_variable(
    monkeypatch, started, variable, option, budget
) -> None:
    if variable is not None:
        monkeypatch.setenv(engine.__main__.PREFIX_VARIABLE, variable)
    host = started(*([] if option is None else ["--prefix-cache-mb", option]))
    assert host._prefix_budget == budget


@pytest.mark.parametrize("text", ["many", "-1", "nan", "inf", "1 GB"])
def test_a_budget_that_is_no_number_is_refused_with_where_it_stood(
    monkeypatch, started, capsys, text
) -> None:
    with pytest.raises(SystemExit) as caught:
        started(f"--prefix-cache-mb={text}")
    assert caught.value.code == 2
    expected = f"--prefix-cache-mb: {text!r} is not a number of MiB, 0 or more"
    assert expected in capsys.readouterr().err
    monkeypatch.setenv(engine.__main__.PREFIX_VARIABLE, text)
    with pytest.raises(SystemExit) as caught:
        started()
    assert caught.value.code == 2
    expected = f"REDRAFT_PREFIX_CACHE_MB: {text!r} is not a number of MiB, 0 or more"
    assert expected in capsys.readouterr().err
