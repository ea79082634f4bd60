"""What is remembered of a window's rewrites: bounded, newest first, and of no harm."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from engine.core import Finished, GenerationRequest, Message, TextDelta
from engine.earlier import MAX_REWRITES, MAX_TOKENS, MAX_WINDOWS, EarlierRewrites
from engine.generation import generate
from engine.prefix import PrefixCache

SOURCE = "def area(width, height):\n    return width * height\n"

REQUEST = GenerationRequest(
    model="tiny",
    messages=(
        Message("user", f"```python\n{SOURCE}\n```\nrename width"),
        Message("assistant", "```python\n"),
    ),
    continue_final_message=True,
    source=SOURCE,
    max_tokens=60,
    window="one",
)


def answer(target, request: GenerationRequest, earlier: EarlierRewrites):
    prefix = PrefixCache(target.runner)
    events = list(generate(target, None, prefix, request, lambda: False, earlier=earlier))
    assert isinstance(events[-1], Finished)
    return "".join(e.text for e in events if isinstance(e, TextDelta)), events[-1].stats


def test_the_newest_rewrite_of_a_window_comes_first_and_other_windows_see_none() -> None:
    earlier = EarlierRewrites()
    earlier.add("one", [1, 2])
    earlier.add("one", [3])
    assert earlier.of("one") == ((3,), (1, 2))
    earlier.add("one", [1, 2])
    assert earlier.of("one") == ((1, 2), (3,))
    assert earlier.of("two") == earlier.of(None) == ()


def test_without_a_window_nothing_is_remembered() -> None:
    earlier = EarlierRewrites()
    earlier.add(None, [1])
    assert earlier.of(None) == ()


def test_the_window_used_longest_ago_is_forgotten() -> None:
    earlier = EarlierRewrites()
    for number in range(MAX_WINDOWS):
        earlier.add(str(number), [number])
    assert earlier.of("0") == ((0,),)
    earlier.add("another", [9])
    assert earlier.of("1") == ()
    assert earlier.of("0") == ((0,),)


@given(st.lists(st.tuples(st.sampled_from("abcdefghijkl"), st.integers(1, 2 * MAX_TOKENS))))
def test_what_is_kept_has_bounds_and_the_last_rewrite_is_always_there(added) -> None:
    earlier = EarlierRewrites()
    for number, (window, length) in enumerate(added):
        tokens = [number] * (length - 1) + [-1 - number]
        earlier.add(window, tokens)
        assert earlier.of(window)[0] == tuple(tokens[-MAX_TOKENS:])
    kept = [rewrites for window in "abcdefghijkl" if (rewrites := earlier.of(window))]
    assert len(kept) <= MAX_WINDOWS
    for rewrites in kept:
        assert len(rewrites) <= MAX_REWRITES
        assert sum(map(len, rewrites)) <= MAX_TOKENS


def test_a_rewrite_like_an_earlier_one_needs_fewer_passes_and_says_the_same(tiny_target) -> None:
    earlier = EarlierRewrites()
    first, cold = answer(tiny_target, REQUEST, earlier)
    again, warm = answer(tiny_target, REQUEST, earlier)
    assert again == first
    assert warm.tokens == cold.tokens
    assert warm.passes < cold.passes
    other, elsewhere = answer(tiny_target, replace(REQUEST, window="two"), earlier)
    assert other == first
    assert elsewhere.passes > warm.passes


def test_misleading_rewrites_change_no_token(tiny_target) -> None:
    right, _ = answer(tiny_target, replace(REQUEST, draft=False), EarlierRewrites())
    prompt = tiny_target.chat.encode_prompt(REQUEST)
    earlier = EarlierRewrites()
    earlier.add("one", [(token * 7 + 1) % 200 for token in prompt])
    earlier.add("one", prompt[::-1])
    earlier.add("one", prompt[:-1] + prompt[:5])
    assert answer(tiny_target, REQUEST, earlier)[0] == right


def test_what_is_remembered_is_the_source_and_the_tokens_of_the_answer(tiny_target) -> None:
    earlier = EarlierRewrites()
    _, stats = answer(tiny_target, REQUEST, earlier)
    (tokens,) = earlier.of("one")
    source = tiny_target.chat.encode_source(SOURCE, "").tokens
    assert list(tokens[: len(source)]) == list(source)
    # The last token's keys and values are never made, so the cache does not hold it.
    assert stats.tokens - 1 <= len(tokens) - len(source) <= stats.tokens


def test_a_prompt_that_is_only_warmed_leaves_nothing(tiny_target) -> None:
    earlier = EarlierRewrites()
    answer(tiny_target, replace(REQUEST, max_tokens=0), earlier)
    assert earlier.of("one") == ()
