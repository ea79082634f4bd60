from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drafters.core import DraftContext
from drafters.history import MAX_MATCH
from drafters.ngram import MIN_MATCH, NgramDrafter


def begun(prompt) -> NgramDrafter:
    drafter = NgramDrafter()
    drafter.begin(DraftContext(prompt=prompt))
    return drafter


def test_it_copies_what_followed_the_last_two_tokens() -> None:
    assert list(begun([1, 2, 3, 4, 5, 1, 2]).propose(3).tokens) == [3, 4, 5]


def test_the_longest_match_wins_over_a_later_shorter_one() -> None:
    prompt = [9, 1, 2, 70, 71, 5, 1, 2, 80, 81, 9, 1, 2]
    assert list(begun(prompt).propose(2).tokens) == [70, 71]


def test_of_equal_matches_the_latest_wins() -> None:
    prompt = [4, 1, 2, 70, 5, 1, 2, 80, 6, 1, 2]
    assert list(begun(prompt).propose(1).tokens) == [80]


def test_a_single_equal_token_is_not_enough() -> None:
    assert not begun([1, 2, 3, 9, 2]).propose(4).tokens


def test_what_was_emitted_is_looked_up_too() -> None:
    drafter = begun([1, 2])
    drafter.observe([5, 6], 7)
    drafter.observe([8, 5], 6)
    assert list(drafter.propose(2).tokens) == [7, 8]


def test_a_short_prompt_gives_nothing() -> None:
    assert not begun([]).propose(4).tokens
    assert not begun([1]).propose(4).tokens


def longest_match_by_hand(tokens: list[int]) -> int:
    best = 0
    for end in range(MIN_MATCH, len(tokens)):
        length = 0
        while (
            length < end
            and length < MAX_MATCH
            and tokens[end - 1 - length] == tokens[len(tokens) - 1 - length]
        ):
            length += 1
        best = max(best, length)
    return best


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.integers(1, 9))
def test_the_draft_follows_a_longest_match(prompt, limit) -> None:
    draft = begun(prompt).propose(limit)
    longest = longest_match_by_hand(prompt)
    if longest < MIN_MATCH:
        assert not draft.tokens
        return
    ends = [
        end
        for end in range(longest, len(prompt))
        if prompt[end - longest : end] == prompt[len(prompt) - longest :]
    ]
    assert list(draft.tokens) in [prompt[end : end + limit] for end in ends]
