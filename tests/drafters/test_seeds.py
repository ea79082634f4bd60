from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.seeds import SEEDS, seeds, variants


@pytest.mark.parametrize(
    ("instruction", "source", "pairs"),
    [
        ("Rename foo to bar", "foo(1)", {"foo": "bar"}),
        ("rename `fooBar` to `baz_qux`", "fooBar", {"fooBar": "baz_qux"}),
        ('Replace "a.b" with "c.d"', "x = a.b", {"a.b": "c.d"}),
        ("use `join` instead of `concat`", "concat(x)", {"concat": "join"}),
        ("switch from assertEquals to assertEqual.", "assertEquals(1)",
         {"assertEquals": "assertEqual"}),
        ("rename foo to bar", "nothing of it", {}),
        ("make it faster", "it", {}),
    ],
)  # fmt: skip
def test_the_instruction_names_what_replaces_what(instruction, source, pairs) -> None:
    assert dict(seeds(instruction, source)) == pairs


def test_an_identifier_is_renamed_in_all_case_variants() -> None:
    source = "fooBar FooBar foo_bar FOO_BAR foo-bar"
    assert dict(seeds("rename fooBar to newName", source)) == {
        "fooBar": "newName",
        "FooBar": "NewName",
        "foo_bar": "new_name",
        "FOO_BAR": "NEW_NAME",
        "foo-bar": "new-name",
    }


def test_the_words_as_they_are_written_come_first() -> None:
    assert variants("HTTPServer", "x")[0] == ("HTTPServer", "x")


@given(st.text(max_size=300), st.text(max_size=50))
def test_any_instruction_gives_a_bounded_number_of_real_changes(instruction, source) -> None:
    pairs = seeds(instruction, source)
    assert len(pairs) <= SEEDS
    assert all(old != new and old in source for old, new in pairs)
