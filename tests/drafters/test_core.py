from __future__ import annotations

import pytest

from drafters.core import Draft, chain


@pytest.mark.parametrize(
    ("parents", "length"),
    [
        ((), 4),
        ((-1, 0, 1, 2), 4),
        ((-1, 0, -1, 2), 2),
        ((-1, 0, 0, 1), 2),
        ((-1, -1, 0, 1), 1),
    ],
)
def test_the_main_chain_is_what_runs_on_from_the_last_emitted_token(parents, length) -> None:
    draft = Draft([5, 6, 7, 8], "source", 0.5, 3, parents)
    cut = chain(draft)
    assert list(cut.tokens) == [5, 6, 7, 8][:length]
    assert cut == draft._replace(tokens=cut.tokens, parents=())


def test_an_empty_draft_stays_empty() -> None:
    assert not chain(Draft((), "none")).tokens
