from __future__ import annotations

from drafters.cascade import CascadeDrafter
from drafters.core import NO_DRAFT, Draft, DraftContext
from drafters.model import ModelDrafter


class Fixed:
    """Drafts what it is told and remembers what it sees."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.asked = 0
        self.seen: list[int] = []

    def begin(self, context: DraftContext) -> None:
        self.seen = list(context.prompt)

    def propose(self, limit: int) -> Draft:
        self.asked += 1
        return self.draft

    def observe(self, accepted, next_token) -> None:
        self.seen += [*accepted, next_token]


def draft(name: str, confidence: float) -> Draft:
    return Draft([1, 2], name, confidence)


def test_the_first_confident_copier_wins() -> None:
    first, second = Fixed(draft("source", 0.8)), Fixed(draft("ngram", 0.99))
    assert CascadeDrafter([first, second]).propose(4).origin == "source"
    assert second.asked == 0


def test_a_doubtful_copy_gives_way_to_a_surer_one() -> None:
    cascade = CascadeDrafter([Fixed(draft("source", 0.5)), Fixed(draft("ngram", 0.75))])
    assert cascade.propose(4).origin == "ngram"


def test_the_model_is_asked_only_when_no_copy_is_sure() -> None:
    model = Fixed(draft("model", 0.9))
    sure = CascadeDrafter([Fixed(draft("source", 0.9))], model)
    assert sure.propose(4).origin == "source"
    assert model.asked == 0
    doubtful = CascadeDrafter([Fixed(draft("source", 0.5))], model)
    assert doubtful.propose(4).origin == "model"


def test_a_model_less_sure_than_the_copy_does_not_replace_it() -> None:
    cascade = CascadeDrafter([Fixed(draft("source", 0.5))], Fixed(draft("model", 0.3)))
    assert cascade.propose(4).origin == "source"


def test_nobody_has_a_draft() -> None:
    assert CascadeDrafter([Fixed(NO_DRAFT)], Fixed(NO_DRAFT)).propose(4) is NO_DRAFT


def test_all_see_what_was_emitted_whoever_drafted_it() -> None:
    copier, model = Fixed(NO_DRAFT), Fixed(NO_DRAFT)
    cascade = CascadeDrafter([copier], model)
    cascade.begin(DraftContext(prompt=[7]))
    cascade.observe([8], 9)
    assert copier.seen == model.seen == [7, 8, 9]


def test_the_model_drafter_hands_the_whole_context_to_its_model() -> None:
    class Echo:
        def greedy(self, context, limit):
            return list(context)[-limit:], 0.6

    drafter = ModelDrafter(Echo())
    drafter.begin(DraftContext(prompt=[1, 2]))
    drafter.observe([3], 4)
    assert drafter.propose(3) == Draft([2, 3, 4], "model", 0.6)
