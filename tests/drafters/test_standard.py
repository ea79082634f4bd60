from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drafters.core import DraftContext, chain
from drafters.standard import StandardDrafter, standard
from tests.drafters.words import Words

INDENTED = "".join(f"    call_{name}(one, two)\n" for name in "abcdefgh")


def after(words: Words, source: str, written: str, instruction: str = "", limit: int = 12):
    """Return a draft made after `written` was emitted token by token."""
    drafter = StandardDrafter()
    drafter.begin(words.context(source, instruction))
    for token in words.tokenize(written):
        drafter.propose(48)
        drafter.observe([], token)
    return drafter.propose(limit)


def paths(words: Words, draft) -> list[str]:
    """Return the text of every path from the root of a draft."""
    parents = draft.parents or range(-1, len(draft.tokens) - 1)
    texts: list[str] = []
    for token, parent in zip(draft.tokens, parents, strict=True):
        before = texts[parent] if parent >= 0 else ""
        texts.append(before + words.text([token]))
    return texts


def main(words: Words, draft) -> str:
    return words.text(chain(draft).tokens)


def test_an_unchanged_answer_is_copied_from_its_start() -> None:
    words = Words()
    source = "def f(x):\n    return x\n"
    draft = after(words, source, "")
    assert (source + "```").startswith(main(words, draft))
    assert (draft.origin, draft.source_index) == ("source", 0)


def test_a_name_replaced_twice_is_replaced_the_third_time() -> None:
    words = Words()
    source = "alpha.one(x)\nalpha.two(y)\nalpha.three(z)\nalpha.four(w)\n"
    draft = after(words, source, "beta.one(x)\nbeta.two(y)\n")
    assert main(words, draft).startswith("beta.three(z)\n")
    assert draft.origin == "memory"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("fooBar", "newName"),
        ("FooBar", "NewName"),
        ("foo_bar", "new_name"),
        ("FOO_BAR", "NEW_NAME"),
    ],
)
def test_a_rename_that_the_instruction_names_is_drafted_at_once(old, new) -> None:
    words = Words()
    draft = after(words, f"x = 1\n{old} = x\n", "x = 1\n", "rename foo_bar to new_name", 24)
    assert f"{new} = x\n" in paths(words, draft)


def test_a_deeper_indentation_is_kept_for_the_lines_that_follow() -> None:
    words = Words()
    lines = INDENTED.splitlines(keepends=True)
    written = "    if x:\n" + "".join("    " + line for line in lines[:3])
    draft = after(words, INDENTED, written, limit=48)
    assert any(path.startswith("        call_d(one, two)\n") for path in paths(words, draft))


def test_a_line_put_in_is_followed_by_the_line_it_was_put_before() -> None:
    words = Words()
    source = "def f(x):\n    a = one(x)\n    b = two(a)\n    c = three(b)\n    return c\n"
    written = "def f(x):\n    a = one(x)\n    print(x)\n"
    draft = after(words, source, written, limit=48)
    assert any(path.startswith("    b = two(a)\n") for path in paths(words, draft))


def test_behind_a_line_that_was_left_out_the_next_ones_are_copied() -> None:
    words = Words()
    source = "one(a)\ntwo(b)\nthree(c, d)\nfour(e)\n"
    draft = after(words, source, "one(a)\nthree(c", limit=24)
    assert any(path.startswith(", d)\nfour(e)\n") for path in paths(words, draft))


def test_a_word_put_before_a_token_is_followed_by_that_token_without_its_space() -> None:
    # The source's token is " x"; behind "(" only "x" can follow.
    words = Words()
    draft = after(words, "return x + y\n", "return (", limit=48)
    assert any(path.startswith("x + y") for path in paths(words, draft))


def test_an_earlier_rewrite_in_the_window_is_looked_up() -> None:
    words = Words()
    drafter = StandardDrafter()
    drafter.begin(words.context("a\n", earlier=("alpha beta gamma delta epsilon\n",)))
    drafter.observe(words.tokenize("alpha beta"), words.tokenize(" gamma")[0])
    assert any(path.startswith(" delta epsilon") for path in paths(words, drafter.propose(24)))


def test_where_trees_are_not_verified_every_draft_is_a_chain() -> None:
    words = Words()
    drafter = standard()
    drafter.begin(words.context("one(a)\ntwo(b)\n"))
    for token in words.tokenize("one(c)\nzero\n"):
        assert not drafter.propose(16).parents
        drafter.observe([], token)


WORDS = Words()
TOKENS = WORDS.tokenize("a b\n  c(d, e);\n\n\tfoo_bar = x.y\n")
SOURCES = st.lists(
    st.sampled_from(["a b\n", "  c(d, e);\n", "foo_bar\n", "\n", "é = a\n"]), max_size=6
)


@settings(deadline=None, max_examples=60)
@given(
    SOURCES.map("".join),
    st.sampled_from(["", "rename a to b", "replace `c` with `foo_bar`"]),
    st.lists(
        st.one_of(
            st.tuples(st.just("propose"), st.integers(-1, 50)),
            st.tuples(st.just("observe"), st.sampled_from([*TOKENS, 10**6])),
            st.tuples(st.just("take"), st.integers(0, 8)),
        ),
        max_size=30,
    ),
    st.booleans(),
    st.booleans(),
)
def test_any_order_of_calls_gives_well_formed_drafts_and_the_same_again(
    source, instruction, calls, trees, spelled
) -> None:
    def run():
        drafter = StandardDrafter(trees)
        context = WORDS.context(source, instruction)
        if not spelled:
            context = DraftContext(context.prompt, context.source, instruction)
        drafter.begin(context)
        draft, told = None, []
        for name, value in calls:
            if name == "propose":
                draft = drafter.propose(value)
                told.append(draft)
                check(draft, value)
            elif name == "observe":
                drafter.observe([], value)
            elif draft and draft.tokens:
                # As the verify loop does: the accepted path, then another token.
                drafter.observe(list(chain(draft).tokens[:value]), TOKENS[0])
                draft = None
        return [(list(d.tokens), list(d.parents), d.origin, d.source_index) for d in told]

    def check(draft, limit) -> None:
        assert len(draft.tokens) <= max(limit, 0)
        assert 0.0 <= draft.confidence <= 1.0
        if draft.parents:
            assert trees
            assert len(draft.parents) == len(draft.tokens)
            assert all(-1 <= parent < index for index, parent in enumerate(draft.parents))
            siblings = list(zip(draft.parents, draft.tokens, strict=True))
            assert len(set(siblings)) == len(siblings)
        if draft.source_index is not None:
            copied = WORDS.tokenize(source + "```")[draft.source_index]
            assert draft.tokens[0] == copied

    assert run() == run()


def test_a_drafter_that_was_not_begun_drafts_nothing() -> None:
    assert not StandardDrafter().propose(8).tokens
