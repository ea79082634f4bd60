from __future__ import annotations

import ctypes
import gc

import pytest

from engine.memory import give_back_free_memory, without_collecting


def test_free_memory_is_given_back_where_the_c_library_can(monkeypatch) -> None:
    asked: list[int] = []

    class Library:
        malloc_trim = staticmethod(asked.append)

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library)
    give_back_free_memory()
    assert asked == [0]


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_another_c_library_is_no_trouble(monkeypatch, error) -> None:
    def missing(name: object) -> None:
        raise error

    monkeypatch.setattr(ctypes, "CDLL", missing)
    give_back_free_memory()


def test_garbage_is_looked_for_again_afterwards_also_after_an_error() -> None:
    seen = []

    def fail() -> None:
        with without_collecting():
            seen.append(gc.isenabled())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert seen == [False]
    assert gc.isenabled()


def test_where_nobody_looks_for_garbage_nobody_begins_to() -> None:
    gc.disable()
    try:
        with without_collecting():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
