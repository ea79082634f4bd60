from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

import engine.generation
from drafters.core import Draft
from engine.core import (
    Cancelled,
    EngineError,
    Finished,
    GenerationRequest,
    GenerationStats,
    Message,
    Progress,
    TextDelta,
)
from engine.cost import CostModel, PassPoint
from engine.draft_model import GreedyDraftModel, check_same_tokenizer
from engine.generation import FIRST_ROOM, answer_limit, generate
from engine.kv_cache import common_prefix, rounded_up
from engine.loop import Pass
from engine.prefix import PrefixCache
from tests.engine.adversary import AdversarialTrees, Everything
from tests.engine.memory import failing_allocations
from tests.tiny import make_tokenizer

SOURCE = "def area(width, height):\n    return width * height\n" * 4


def a_request(**changes) -> GenerationRequest:
    request = GenerationRequest(
        model="tiny",
        messages=(
            Message("user", f"```python\n{SOURCE}\n```\nrename width"),
            Message("assistant", "```python\n"),
        ),
        continue_final_message=True,
        source=SOURCE,
        max_tokens=60,
    )
    return replace(request, **changes)


def run(target, request, prefix=None, draft_model=None, is_cancelled=lambda: False):
    prefix = prefix or PrefixCache(target.runner)
    events = list(generate(target, draft_model, prefix, request, is_cancelled))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert isinstance(events[-1], Finished)
    return text, events[-1], events


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_text_and_its_length_do_not_depend_on_drafts(tiny_target, temperature) -> None:
    for seed in range(6):
        request = a_request(temperature=temperature, seed=seed)
        drafted, end, _ = run(tiny_target, request)
        plain, plain_end, _ = run(tiny_target, replace(request, draft=False))
        assert drafted == plain
        assert end.reason == plain_end.reason
        assert end.stats.tokens == plain_end.stats.tokens
        assert plain_end.stats.passes == plain_end.stats.tokens
        assert plain_end.stats.drafted == 0


def test_a_warm_prefix_changes_nothing_and_saves_prefill(tiny_target) -> None:
    fresh, _, _ = run(tiny_target, a_request())
    prefix = PrefixCache(tiny_target.runner)
    _, warm, events = run(tiny_target, a_request(max_tokens=0), prefix)
    assert not [event for event in events if isinstance(event, TextDelta)]
    assert warm.stats.tokens == warm.stats.passes == 0
    again, end, _ = run(tiny_target, a_request(), prefix)
    assert again == fresh
    # The last token is left to the first pass; int8 is reused to the token.
    grid = tiny_target.runner.new_cache(1).grid
    assert grid == (1 if tiny_target.runner.dtype == "int8" else 64)
    assert end.stats.cached_prompt_tokens == (end.stats.prompt_tokens - 1) // grid * grid
    assert (warm.stats.kept_sequences, warm.stats.kept_bytes) == (0, 0)
    assert end.stats.kept_sequences == 1
    assert end.stats.kept_bytes > 0


def test_asking_again_with_another_instruction_prefills_only_what_changed(tiny_qwen2_int8) -> None:
    def asked(instruction: str) -> GenerationRequest:
        user = Message("user", f"```python\n{SOURCE}\n```\n{instruction}")
        return a_request(messages=(user, a_request().messages[1]))

    first, second = asked("rename width"), asked("rename height")
    prompts = [tiny_qwen2_int8.chat.encode_prompt(request) for request in (first, second)]
    same = common_prefix(*prompts)
    assert 40 < same < min(map(len, prompts)) - 5
    fresh, _, _ = run(tiny_qwen2_int8, second)
    prefix = PrefixCache(tiny_qwen2_int8.runner)
    run(tiny_qwen2_int8, replace(first, max_tokens=0), prefix)
    _, end, _ = run(tiny_qwen2_int8, first, prefix)
    assert end.stats.cached_prompt_tokens == len(prompts[0]) - 1
    text, end, events = run(tiny_qwen2_int8, second, prefix)
    assert end.stats.cached_prompt_tokens == same
    missing = len(prompts[1]) - 1 - same
    assert events[0] == Progress("prefill", 0.0, f"0 of {missing} tokens")
    assert text == fresh
    # Both are kept now, whichever is asked for next.
    for request, prompt in ((first, prompts[0]), (second, prompts[1])):
        _, end, _ = run(tiny_qwen2_int8, request, prefix)
        assert end.stats.cached_prompt_tokens == len(prompt) - 1
        assert end.stats.kept_sequences == 2


def test_an_answer_that_comes_back_in_a_chat_is_not_prefilled_again(tiny_qwen2_int8) -> None:
    prefix = PrefixCache(tiny_qwen2_int8.runner)
    prompt = tiny_qwen2_int8.chat.encode_prompt(a_request())
    run(tiny_qwen2_int8, a_request(), prefix)
    (kept,) = prefix._kept
    assert kept.tokens[: len(prompt)] == prompt
    # All but the last token written, whose keys and values no pass has made yet.
    assert kept.length == len(prompt) + 60 - 1
    longer = [*kept.tokens, 5, 6]
    assert prefix.take(longer, len(longer)).length == kept.length


def test_faster_passes_are_told_and_have_their_own_prefix(tiny_qwen2) -> None:
    prefix = PrefixCache(tiny_qwen2.runner)
    for exact, other in ((True, False), (False, True)):
        _, end, _ = run(tiny_qwen2, a_request(exact=exact), prefix)
        assert end.stats.exact == exact
        assert (end.stats.cached_prompt_tokens, end.stats.kept_sequences) == (0, int(other is True))


def test_a_huge_limit_allocates_only_what_the_answer_comes_to_need(tiny_qwen2_int8) -> None:
    prefix = PrefixCache(tiny_qwen2_int8.runner)
    request = a_request(max_tokens=3500)
    prompt = len(tiny_qwen2_int8.chat.encode_prompt(request))
    events = generate(tiny_qwen2_int8, None, prefix, request, lambda: False)
    while not isinstance(next(events), TextDelta):
        pass
    events.close()
    (kept,) = prefix._kept
    assert {layer.capacity for layer in kept.layers} == {rounded_up(prompt + FIRST_ROOM)}


def test_without_memory_for_a_pass_what_is_kept_makes_room(tiny_qwen2, monkeypatch) -> None:
    expected, _, _ = run(tiny_qwen2, a_request())
    other = (Message("user", "other " * 100),)
    for allowed in range(2 * len(tiny_qwen2.runner.new_cache(1).layers)):
        prefix = PrefixCache(tiny_qwen2.runner)
        run(tiny_qwen2, a_request(messages=other, continue_final_message=False), prefix)
        assert prefix.sequences == 1
        with (
            failing_allocations(monkeypatch, allowed),
            pytest.raises(RuntimeError, match="can't allocate memory"),
        ):
            run(tiny_qwen2, a_request(), prefix)
        assert prefix.sequences == 0
        assert run(tiny_qwen2, a_request(), prefix)[0] == expected


def test_interleaved_prompts_never_mix(tiny_target) -> None:
    other = a_request(
        messages=(Message("user", f"```python\n{SOURCE}\n```\nother"), a_request().messages[1])
    )
    alone = [run(tiny_target, request)[0] for request in (a_request(), other)]
    prefix = PrefixCache(tiny_target.runner)
    for _ in range(2):
        assert [run(tiny_target, r, prefix)[0] for r in (a_request(), other)] == alone


def test_cancelling_at_any_pass_leaves_the_next_answer_right(tiny_qwen2) -> None:
    expected, _, _ = run(tiny_qwen2, a_request())
    prefix = PrefixCache(tiny_qwen2.runner)
    for checks in range(1, 12):
        left = [checks]

        def is_cancelled(left=left) -> bool:
            left[0] -= 1
            return left[0] <= 0

        with pytest.raises(Cancelled):
            run(tiny_qwen2, a_request(), prefix, is_cancelled=is_cancelled)
        # Asked once a prefill chunk and once a pass: nothing runs on after the answer.
        assert left[0] == 0
        assert run(tiny_qwen2, a_request(), prefix)[0] == expected


def test_closing_the_iterator_in_the_middle_leaves_the_next_answer_right(tiny_qwen2) -> None:
    expected, _, _ = run(tiny_qwen2, a_request())
    prefix = PrefixCache(tiny_qwen2.runner)
    events = generate(tiny_qwen2, None, prefix, a_request(), lambda: False)
    for event in events:
        if isinstance(event, TextDelta):
            break
    events.close()
    assert run(tiny_qwen2, a_request(), prefix)[0] == expected


def test_a_failure_in_the_middle_of_a_pass_leaves_the_next_answer_right(
    tiny_qwen2, monkeypatch
) -> None:
    expected, _, _ = run(tiny_qwen2, a_request())
    prefix = PrefixCache(tiny_qwen2.runner)
    model = tiny_qwen2.runner._model
    layer = model.model.layers[1]

    def fail(*args, **kwargs):
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patch:
        patch.setattr(layer, "forward", fail)
        with pytest.raises(RuntimeError, match="out of luck"):
            run(tiny_qwen2, a_request(), prefix)
    assert run(tiny_qwen2, a_request(), prefix)[0] == expected


def test_cancelling_after_any_pass_over_a_tree_leaves_the_next_answer_right(
    tiny_target, monkeypatch
) -> None:
    longer = a_request(messages=(*a_request().messages[:1], Message("assistant", "```python\nde")))
    requests = [a_request(), longer, a_request(temperature=0.9, seed=3)]
    expected: list[str] = []
    answers: list[list[int]] = []
    verify_loop = engine.generation.verify_loop

    def noting(*args):
        for step in verify_loop(*args):
            answers[-1].extend(step.tokens)
            yield step

    with monkeypatch.context() as patch:
        patch.setattr(engine.generation, "verify_loop", noting)
        for request in requests:
            answers.append([])
            expected.append(run(tiny_target, replace(request, draft=False))[0])
    vocabulary = tiny_target.tokenizer.get_vocab_size()
    place, seed = 0, 0

    def adversary(request, *_):
        return AdversarialTrees(answers[place], vocabulary, seed)

    monkeypatch.setattr(engine.generation, "_drafter", adversary)
    monkeypatch.setattr(engine.generation, "WindowPolicy", Everything)
    prefix = PrefixCache(tiny_target.runner)
    accepted = 0
    for seed in range(1, 5):
        for place, request in enumerate(requests):
            deltas = generate(tiny_target, None, prefix, request, lambda: False)
            for _ in range(seed + 4):
                next(deltas, None)
            deltas.close()
            text, end, _ = run(tiny_target, request, prefix)
            assert text == expected[place]
            accepted += end.stats.accepted_by_origin.get("branch", 0)
    assert accepted > 10


@pytest.mark.parametrize(
    ("source_index", "path", "copied", "accepted"),
    [
        (7, [0, 1, 2], [7, 8, 9, None], {"source": 3}),
        (7, [0, 1, 3, 4], [7, 8, None, None, None], {"source": 2, "branch": 2}),
        (7, [5], [None, None], {"branch": 1}),
        (None, [0, 1, 3], [None, None, None, None], {"source": 2, "branch": 1}),
        (0, [], [None], {}),
    ],
)
def test_only_the_main_chain_is_said_to_be_copied(source_index, path, copied, accepted) -> None:
    drafted = [11, 12, 13, 14, 15, 16]
    draft = Draft(drafted, "source", 0.9, source_index, (-1, 0, 1, 1, 3, -1))
    tokens = [*(drafted[node] for node in path), 99]
    fed: list[tuple[int, int | None]] = []
    text = SimpleNamespace(feed=lambda *token: fed.append(token), stopped=False)
    stats = GenerationStats()
    step = Pass(tokens, draft, list(range(6)), path, [1.0] * len(tokens))
    assert engine.generation._feed(step, text, frozenset(), 100, stats) is None  # type: ignore
    assert fed == list(zip(tokens, copied, strict=True))
    assert stats.accepted_by_origin == accepted
    assert stats.drafted_by_origin == {"source": 3, "branch": 3}
    assert (stats.drafted, stats.accepted) == (6, len(path))


def test_prefill_reports_its_progress(tiny_qwen2) -> None:
    _, end, events = run(tiny_qwen2, a_request())
    fractions = [e.fraction for e in events if isinstance(e, Progress) and e.phase == "prefill"]
    assert fractions[0] == 0.0
    assert fractions[-1] == 1.0
    assert fractions == sorted(fractions)
    assert end.stats.prefill_seconds > 0


def test_the_limit_cuts_the_answer_off_at_exactly_that_many_tokens(tiny_qwen2) -> None:
    for limit in (1, 2, 17):
        _, end, _ = run(tiny_qwen2, a_request(max_tokens=limit))
        assert (end.reason, end.stats.tokens) == ("length", limit)


def test_a_stop_text_ends_the_answer_before_it(tiny_qwen2) -> None:
    text, _, _ = run(tiny_qwen2, a_request())
    stop = text[10:13]
    stopped, end, _ = run(tiny_qwen2, a_request(stop=(stop,)))
    assert stopped == text[: text.index(stop)]
    assert end.reason == "stop"


def test_an_end_token_ends_the_answer(tiny_qwen2) -> None:
    _, _, _ = run(tiny_qwen2, a_request())
    # Make every token an end token: the first one ends the answer.
    everything = frozenset(range(tiny_qwen2.tokenizer.get_vocab_size()))
    text, end, _ = run(replace(tiny_qwen2, end_tokens=everything), a_request())
    assert (text, end.reason, end.stats.tokens) == ("", "stop", 1)


def test_the_counts_add_up(tiny_target) -> None:
    _, end, _ = run(tiny_target, a_request())
    stats = end.stats
    assert sum(stats.accepted_by_origin.values()) == stats.accepted
    assert sum(stats.drafted_by_origin.values()) == stats.drafted
    assert stats.accepted <= stats.drafted
    assert stats.accepted + stats.passes >= stats.tokens
    assert stats.tokens_per_pass == stats.tokens / stats.passes
    assert set(stats.drafted_by_origin) <= {"source", "memory", "ngram", "branch"}


@pytest.mark.parametrize(
    ("prompt", "source", "asked", "limit"),
    [(100, 50, None, 612), (100, 50, 7, 7), (100, 0, None, 512), (3000, 500, None, 1096)],
)
def test_the_answer_may_be_twice_as_long_as_its_source(prompt, source, asked, limit) -> None:
    assert answer_limit(a_request(max_tokens=asked), prompt, source, 4096) == limit


@pytest.mark.parametrize(
    ("prompt", "source", "asked"),
    [(4096, 10, None), (5000, 10, 0), (4000, 10, 97), (3900, 300, None)],
)
def test_what_does_not_fit_the_window_is_refused_with_the_numbers(prompt, source, asked) -> None:
    with pytest.raises(EngineError, match="4096") as caught:
        answer_limit(a_request(max_tokens=asked), prompt, source, 4096)
    assert caught.value.code == "context_length_exceeded"


def test_a_draft_model_drafts_and_changes_nothing(tiny_qwen2) -> None:
    plain, plain_end, _ = run(tiny_qwen2, a_request(draft=False))
    small = GreedyDraftModel(tiny_qwen2)
    text, end, _ = run(tiny_qwen2, a_request(), draft_model=small)
    assert text == plain
    # It is the target itself, so its drafts are right: fewer passes, text by `model`.
    assert end.stats.accepted_by_origin.get("model", 0) > 0
    assert end.stats.passes < plain_end.stats.passes
    # And a second answer, with a cache that stood elsewhere.
    assert run(tiny_qwen2, a_request(), draft_model=small)[0] == plain


def said_by(session, context: list[int], rows: int = 1):
    """Ask until something is said, reading in between."""
    said = session.say(context, rows)
    if not said:
        for _ in session.read():
            pass
        said = session.say(context, rows)
    return said


def test_a_draft_model_reads_a_long_prompt_in_steps_that_may_be_dropped(tiny_qwen2) -> None:
    chunk = tiny_qwen2.runner.prefill_chunk
    context = [5 + i % 9 for i in range(5 * chunk)]
    expected = said_by(GreedyDraftModel(tiny_qwen2).session(), context)
    assert expected
    session = GreedyDraftModel(tiny_qwen2).session()
    assert session.say(context, 1) == []
    steps = session.read()
    for _ in range(3):
        next(steps)
    del steps
    assert session._cache is not None
    assert session._cache.length == chunk
    assert session.say(context, 1) == []
    assert said_by(session, context) == expected
    session.close()
    session.close()


def test_sessions_of_a_draft_model_share_what_was_read(tiny_qwen2) -> None:
    context = [5 + i % 9 for i in range(5 * tiny_qwen2.runner.prefill_chunk)]
    small = GreedyDraftModel(tiny_qwen2)
    first, second = small.session(), small.session()
    expected = said_by(first, context)
    assert second.say(context, 1) == expected
    other = [*context, 9]
    assert first.say(other, 1) == said_by(GreedyDraftModel(tiny_qwen2).session(), other)
    first.close()
    second.close()
    assert small.session().say(context, 1) == expected


def test_a_run_read_over_in_one_pass_is_judged_as_token_by_token(tiny_qwen2) -> None:
    context = [5 + i % 9 for i in range(20)]
    small = GreedyDraftModel(tiny_qwen2)
    session = small.session()
    run_of = [7, 8, 6, 11, 5]
    at_once = session.say([*context, *run_of], len(run_of) + 1)
    longest = tiny_qwen2.runner.max_draft + 1
    assert small.passes == -(-(len(context) + len(run_of)) // longest)
    one_by_one = [
        said_by(GreedyDraftModel(tiny_qwen2).session(), [*context, *run_of[:count]])[0]
        for count in range(len(run_of) + 1)
    ]
    assert [s.token for s in at_once] == [s.token for s in one_by_one]
    assert [s.probability for s in at_once] == pytest.approx(
        [s.probability for s in one_by_one], rel=1e-3
    )
    # Another way on from the middle: what is common is not run again.
    rows = small.rows
    other = session.say([*context, 7, 8, 9], 1)[0]
    assert small.rows == rows + 1
    fresh = said_by(GreedyDraftModel(tiny_qwen2).session(), [*context, 7, 8, 9])[0]
    assert (other.token, other.probability) == pytest.approx(tuple(fresh), rel=1e-3)


def test_a_question_beyond_the_window_is_not_answered(tiny_qwen2) -> None:
    session = GreedyDraftModel(tiny_qwen2).session()
    assert session.say([5] * (tiny_qwen2.runner.max_context + 1), 1) == []
    assert session.say([5], 2) == []


def points(seconds: float) -> CostModel:
    return CostModel(PassPoint(w, 64, seconds * (1 + 0.01 * w), 1) for w in (1, 8, 64))


def test_a_draft_model_as_dear_as_the_target_is_not_asked(tiny_qwen2) -> None:
    dear = replace(tiny_qwen2, cost=points(5.0))
    small = GreedyDraftModel(dear, target_cost=points(1.0))
    plain, _, _ = run(tiny_qwen2, a_request(draft=False))
    assert run(tiny_qwen2, a_request(), draft_model=small)[0] == plain
    assert small.passes == 0


def test_a_cheap_draft_model_is_asked_when_reading_its_prompt_has_paid(tiny_qwen2) -> None:
    cheap = replace(tiny_qwen2, cost=points(0.001))
    small = GreedyDraftModel(cheap, target_cost=points(1.0))
    plain, _, _ = run(tiny_qwen2, a_request(draft=False))
    assert run(tiny_qwen2, a_request(), draft_model=small)[0] == plain
    assert small.passes > 0
    session = small.session()
    assert session.costs([5] * 500).unread > session.costs([5]).unread == 0.0
    assert session.costs([5]).target > 0.9


def test_a_draft_model_with_another_tokenizer_is_refused(tiny_qwen2) -> None:
    other = make_tokenizer()
    other.add_tokens(["<|other|>"])
    stranger = replace(tiny_qwen2, name="stranger", tokenizer=other.backend_tokenizer)
    with pytest.raises(EngineError, match="another tokenizer") as caught:
        check_same_tokenizer(tiny_qwen2, stranger)
    assert caught.value.code == "draft_model_mismatch"
    check_same_tokenizer(tiny_qwen2, tiny_qwen2)


def test_statistics_say_whether_drafts_could_change_the_text(tiny_qwen2) -> None:
    def exact(**more) -> bool:
        return run(tiny_qwen2, replace(a_request(), max_tokens=3, **more))[1].stats.exact

    assert exact()
    assert exact(temperature=1.0)
    assert exact(acceptance="rejection")
    assert not exact(acceptance="rejection", temperature=1.0)
    assert not exact(exact=False)


def test_the_margin_does_not_depend_on_how_far_a_draft_ran_past_the_limit(tiny_qwen2) -> None:
    margins = [
        run(tiny_qwen2, replace(a_request(), max_tokens=limit))[1].stats.smallest_margin
        for limit in (1, 5, 9)
    ]
    plain = [
        run(tiny_qwen2, replace(a_request(), max_tokens=limit, draft=False))[
            1
        ].stats.smallest_margin
        for limit in (1, 5, 9)
    ]
    assert margins == plain
    assert margins == sorted(margins, reverse=True)
