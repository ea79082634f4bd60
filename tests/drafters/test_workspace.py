from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.core import DraftContext
from drafters.standard import StandardDrafter
from drafters.workspace import (
    BREAK,
    BYTES_A_TOKEN,
    FOLLOWERS,
    MAX_MATCH,
    WorkspaceIndex,
    WorkspaceLookup,
    build_index,
    read_index,
)
from tests.drafters.test_standard import paths
from tests.drafters.words import Words

FILES = st.lists(st.lists(st.integers(0, 4), max_size=10), max_size=3)


def followers_by_hand(files, context) -> dict[int, int]:
    counts: dict[int, int] = {}
    seen = 0
    for file in files:
        for end in range(len(context), len(file)):
            if file[end - len(context) : end] == context:
                counts[file[end]] = counts.get(file[end], 0) + 1
                seen += 1
    return counts


@given(FILES, st.lists(st.integers(0, 4), min_size=1, max_size=3))
def test_followers_are_those_that_a_search_through_all_files_finds(files, context) -> None:
    found = WorkspaceLookup(build_index(files)).followers(*context)
    by_hand = followers_by_hand(files, context)
    places = sum(by_hand.values())
    assert {f.token: round(f.share * (places + 1)) for f in found} == by_hand
    assert all(f.places == places for f in found)
    assert [f.share for f in found] == sorted((f.share for f in found), reverse=True)


@given(FILES, st.lists(st.integers(0, 4), min_size=3, max_size=12))
def test_a_match_is_as_long_as_it_says_and_no_longer(files, context) -> None:
    index = build_index(files)
    tokens = list(index.tokens)
    for place, length in WorkspaceLookup(index).matches(context):
        assert 3 <= length <= MAX_MATCH
        assert tokens[place - length : place] == context[-length:]
        assert length in (len(context), place) or (
            tokens[place - length - 1] != context[-length - 1]
        )
        assert tokens[place] != BREAK


def test_nothing_is_found_across_the_border_of_two_files() -> None:
    lookup = WorkspaceLookup(build_index([[1, 2, 3], [4, 5]]))
    assert [f.token for f in lookup.followers(2)] == [3]
    assert lookup.followers(3) == lookup.followers(BREAK) == lookup.followers(2, 3) == []
    assert lookup.followers(-1) == lookup.followers(1 << 40) == []


def test_behind_three_tokens_the_nearest_places_come_first() -> None:
    near, far = [7, 8, 1, 2] * 40, [7, 8, 1, 3] * 400
    for files, token in (([near, far], 2), ([far, near], 3)):
        assert {f.token for f in WorkspaceLookup(build_index(files)).followers(7, 8, 1)} == {token}


def test_of_many_places_behind_fewer_tokens_a_fair_share_is_counted() -> None:
    index = build_index([[9, 1, 2] * 200, [5, 1, 3] * 200, [3, 1, 4] * 400])
    shares = {f.token: f.share for f in WorkspaceLookup(index).followers(1)}
    assert {token: round(share, 1) for token, share in shares.items()} == {2: 0.2, 3: 0.2, 4: 0.5}
    assert len(index.places([1], FOLLOWERS)) <= FOLLOWERS


def test_an_index_stops_at_its_most_tokens_and_takes_so_many_bytes_each() -> None:
    index = build_index([[1] * 50, [2] * 80, [3] * 9], 100)
    assert len(index.tokens) == 100
    assert (index.tokens[50], index.tokens[99]) == (BREAK, BREAK)
    assert index.bytes == 100 * BYTES_A_TOKEN
    assert len(index.written()) <= 100 * BYTES_A_TOKEN + 16


@given(FILES)
def test_an_index_read_back_is_the_same(files) -> None:
    index = build_index(files)
    again = read_index(index.written())
    assert again.written() == index.written()
    assert list(again.tokens) == list(index.tokens)


@given(st.binary(max_size=80))
def test_bytes_that_are_no_index_are_refused(data) -> None:
    with pytest.raises(ValueError, match=r"no index|buffer"):
        read_index(data + b"x")


def workspace_of(words: Words, *files: str) -> WorkspaceIndex:
    return build_index([words.tokenize(file) for file in files])


def drafted(words: Words, index: WorkspaceIndex | None, written: str):
    drafter = StandardDrafter()
    context = words.context("one(a)\ntwo(b)\n")
    drafter.begin(
        DraftContext(
            context.prompt, context.source, "", context.pieces, context.tokenize, workspace=index
        )
    )
    for token in words.tokenize(written):
        drafter.propose(48)
        drafter.observe([], token)
    return drafter.propose(48)


def test_new_text_that_the_workspace_holds_is_drafted_from_it() -> None:
    words = Words()
    index = workspace_of(words, "x = 1\nlog = logging.getLogger(__name__)\nsetup(log)\n" * 3)
    written = "one(a)\nlog = logging"
    draft = drafted(words, index, written)
    assert any(path.startswith(".getLogger(__name__)\n") for path in paths(words, draft))
    assert draft.origin == "workspace"
    assert draft.source_index is None
    without = drafted(words, None, written)
    assert not any("getLogger" in path for path in paths(words, without))


def test_an_empty_workspace_drafts_as_none_does() -> None:
    words = Words()
    written = "one(a)\nthree(c)\nt"
    assert drafted(words, build_index([]), written) == drafted(words, None, written)


WORDS = Words()
ANY = WORDS.tokenize("one(a)\ntwo(b)\nthree(c, d)\n  x = y.z\n")


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.sampled_from([*ANY, 10**7, -5]), max_size=60), max_size=4),
    st.lists(st.tuples(st.sampled_from([*ANY, 10**7]), st.integers(0, 50)), max_size=12),
    st.booleans(),
)
def test_whatever_the_workspace_holds_drafts_are_well_formed(files, steps, trees) -> None:
    drafter = StandardDrafter(trees)
    context = WORDS.context("one(a)\ntwo(b)\n")
    index = build_index(files)
    drafter.begin(
        DraftContext(
            context.prompt, context.source, "", context.pieces, context.tokenize, workspace=index
        )
    )
    for token, limit in steps:
        draft = drafter.propose(limit)
        assert len(draft.tokens) <= limit
        assert BREAK not in draft.tokens
        if draft.parents:
            assert trees
            assert all(-1 <= parent < place for place, parent in enumerate(draft.parents))
            assert len(set(zip(draft.parents, draft.tokens, strict=True))) == len(draft.tokens)
        drafter.observe([], token)
