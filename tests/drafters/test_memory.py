from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drafters.memory import LONGEST, RULES, Memory


def applied(memory: Memory, source: bytes, start: int) -> bytes:
    """Return the source from `start` on with every rule applied that is found there."""
    parts, position = [], start
    for site in memory.sites(start, len(source)):
        parts += (source[position : site.start], site.rule.new)
        position = site.end
    return b"".join([*parts, source[position:]])


def learnt(source: bytes, old: bytes, new: bytes) -> tuple[Memory, int]:
    """Return a memory that saw the first `old` become `new`, and the offset behind it."""
    memory = Memory(source)
    start = source.index(old)
    memory.learn(start, start + len(old), new)
    return memory, start + len(old)


@pytest.mark.parametrize(
    ("source", "old", "new", "rest"),
    [
        (b"foo(a)\nb = foo(c)\nfood\n", b"foo", b"bar", b"(a)\nb = bar(c)\nfood\n"),
        (b"getUser()\nx.getUser()", b"get", b"fetch", b"User()\nx.fetchUser()"),
        (b"a();\nb();\nc();\n", b";\n", b"\n", b"b()\nc()\n"),
        (b"x = f(a)\ny = f(b)\n", b"f", b"await f", b"(a)\ny = await f(b)\n"),
        (b"return count\ncount += 1", b"count", b"self.count", b"\nself.count += 1"),
    ],
)
def test_what_was_replaced_is_replaced_again(source, old, new, rest) -> None:
    memory, behind = learnt(source, old, new)
    assert applied(memory, source, behind) == rest


def test_part_of_a_word_is_not_the_word() -> None:
    memory, behind = learnt(b"id = 1; width = id", b"id", b"key")
    assert applied(memory, b"id = 1; width = id", behind) == b" = 1; width = key"


def test_a_rule_that_fails_is_dropped() -> None:
    source = b"foo a foo b foo"
    memory, behind = learnt(source, b"foo", b"bar")
    assert memory.sites(behind, len(source))
    for _ in range(9):
        for site in memory.sites(behind, len(source)):
            site.rule.misses += 20.0
    assert not memory.sites(behind, len(source))


def test_indentation_is_left_to_the_projection() -> None:
    source = b"a\n  b\n  c\n"
    memory = Memory(source)
    memory.learn(2, 4, b"    ")
    assert len(memory) == 0


def test_seeds_are_known_before_anything_was_written() -> None:
    assert applied(Memory(b"a = old", [(b"old", b"new")]), b"a = old", 0) == b"a = new"


@given(st.binary(max_size=60), st.data())
def test_it_is_bounded_and_its_sites_are_ordered(source, data) -> None:
    memory = Memory(source)
    for _ in range(data.draw(st.integers(0, 6))):
        start = data.draw(st.integers(0, len(source)))
        end = data.draw(st.integers(start, len(source)))
        memory.learn(start, end, data.draw(st.binary(max_size=20)))
        sites = memory.sites(0, len(source))
        assert sites == sorted(sites, key=lambda site: site.start)
        assert all(a.end <= b.start for a, b in pairwise(sites))
        assert all(0 < site.rule.chance < 1 for site in sites)


def test_the_number_and_the_length_of_rules_are_bounded() -> None:
    source = b" ".join(b"name%d" % number for number in range(300))
    memory = Memory(source)
    for number in range(300):
        at = source.index(b"name%d" % number)
        memory.learn(at, at + len(b"name%d" % number), b"x" * number)
    assert 0 < len(memory) <= RULES
    big = Memory(source)
    big.learn(0, 5, b"y" * (LONGEST + 1))
    assert len(big) == 0
