"""Answers that take turns: nobody's text changes, and nothing is read twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

import engine.generation
from engine.core import Cancelled, Event, Finished, GenerationRequest, Message, Progress, TextDelta
from engine.draft_model import GreedyDraftModel
from engine.generation import generate, timed
from engine.prefix import WORTH_A_WAIT, PrefixCache
from tests.engine.adversary import AdversarialTrees, LyingModel

SOURCE = "def area(width, height):\n    return width * height\n" * 20


def rewrite(instruction: str, **changes) -> GenerationRequest:
    messages = (Message("user", f"{SOURCE}\n{instruction}"),)
    request = GenerationRequest("tiny", messages, source=SOURCE, max_tokens=30)
    return replace(request, **changes)


def never() -> bool:
    return False


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def stats_of(events: list[Event]):
    assert isinstance(events[-1], Finished)
    return events[-1].stats


def alone(target, request: GenerationRequest) -> str:
    plain = replace(request, draft=False)
    return text_of(list(generate(target, None, PrefixCache(target.runner), plain, never)))


def in_turns(*answers: Iterator[Event]) -> list[list[Event]]:
    """Run answers one step each in turn, as the worker does."""
    heard: list[list[Event]] = [[] for _ in answers]
    running = list(range(len(answers)))
    while running:
        for i in list(running):
            heard[i].append(next(answers[i]))
            if isinstance(heard[i][-1], Finished):
                answers[i].close()  # type: ignore[attr-defined]
                running.remove(i)
    return heard


def reading(target, prefix: PrefixCache, request: GenerationRequest, steps: int) -> Iterator[Event]:
    """Begin an answer and take so many steps of its prefill; the first one reads nothing."""
    answer = generate(target, None, prefix, request, never)
    for _ in range(steps):
        event = next(answer)
        assert isinstance(event, Progress)
        assert event.fraction is not None
        assert event.fraction < 1
    return answer


@pytest.mark.parametrize("first", ["rewrite", "warm"])
def test_what_another_answer_is_reading_is_waited_for_and_not_read_twice(
    tiny_target, first
) -> None:
    prefix = PrefixCache(tiny_target.runner)
    one = rewrite("Rename width.", max_tokens=0 if first == "warm" else 30)
    two = rewrite("Do rename height, please.")
    heard = in_turns(
        reading(tiny_target, prefix, one, 2), generate(tiny_target, None, prefix, two, never)
    )
    grid = tiny_target.runner.new_cache(1).grid
    prompts = [tiny_target.chat.encode_prompt(request) for request in (one, two)]
    same = next(i for i, (a, b) in enumerate(zip(*prompts, strict=False)) if a != b)
    assert same > 3 * WORTH_A_WAIT
    assert stats_of(heard[0]).cached_prompt_tokens == 0
    # It begins when nearly all has been read, or all.
    assert stats_of(heard[1]).cached_prompt_tokens >= (same - WORTH_A_WAIT) // grid * grid
    told = [event for event in heard[1] if isinstance(event, Progress)]
    assert told[0] == Progress("queued", None, "the same code is being read")
    assert [event.phase for event in told].count("queued") == 1
    assert text_of(heard[1]) == alone(tiny_target, two)
    if first == "rewrite":
        assert text_of(heard[0]) == alone(tiny_target, one)


@pytest.mark.parametrize("steps", [1, 2, 4, 6])
def test_a_reader_that_is_cancelled_leaves_what_it_read_to_the_one_that_waits(
    tiny_target, steps
) -> None:
    prefix = PrefixCache(tiny_target.runner)
    first = reading(tiny_target, prefix, rewrite("Rename width."), steps)
    second = generate(tiny_target, None, prefix, rewrite("Rename height."), never)
    heard = [next(second), next(second)]
    first.close()  # type: ignore[attr-defined]
    heard += list(second)
    steps_of_a_chunk = 2  # the layers of the tiny models
    whole_chunks = (steps - 1) // steps_of_a_chunk
    assert stats_of(heard).cached_prompt_tokens == whole_chunks * tiny_target.runner.prefill_chunk
    assert text_of(heard) == alone(tiny_target, rewrite("Rename height."))


def test_one_that_waits_sees_its_cancel(tiny_qwen2) -> None:
    prefix = PrefixCache(tiny_qwen2.runner)
    first = reading(tiny_qwen2, prefix, rewrite("Rename width."), 1)
    cancelled: list[bool] = []
    second = generate(tiny_qwen2, None, prefix, rewrite("Be brief."), lambda: bool(cancelled))
    next(second)
    cancelled.append(True)
    with pytest.raises(Cancelled):
        next(second)
    assert text_of(list(first)) == alone(tiny_qwen2, rewrite("Rename width."))


def test_while_the_other_writes_nobody_waits(tiny_qwen2_int8) -> None:
    prefix = PrefixCache(tiny_qwen2_int8.runner)
    first = generate(tiny_qwen2_int8, None, prefix, rewrite("Rename width."), never)
    while not isinstance(next(first), TextDelta):
        pass
    second = list(generate(tiny_qwen2_int8, None, prefix, rewrite("Rename width."), never))
    stats = stats_of(second)
    assert stats.cached_prompt_tokens == stats.prompt_tokens - 1
    first.close()  # type: ignore[attr-defined]


def test_any_order_of_turns_and_cancels_under_an_adversary_changes_no_text(
    tiny_target, monkeypatch
) -> None:
    choice = random.Random(11)
    requests = [
        rewrite(text, temperature=0.9 * (i % 2), seed=i)
        for i, text in enumerate(["Rename width.", "Rename it.", "Rename width.", "Be brief."])
    ]
    requests[3] = replace(requests[3], messages=(Message("user", "something else"),))
    expected = [alone(tiny_target, request) for request in requests]
    vocabulary = tiny_target.tokenizer.get_vocab_size()

    def adversary(request, *_):
        answer = tiny_target.tokenizer.encode(expected[requests.index(request)]).ids
        return AdversarialTrees(answer, vocabulary, choice.randrange(100))

    monkeypatch.setattr(engine.generation, "_drafter", adversary)
    prefix = PrefixCache(tiny_target.runner)
    ended = 0
    for _ in range(8):
        order = [choice.randrange(4) for _ in range(4)]
        running = {
            place: generate(tiny_target, None, prefix, requests[i], never)
            for place, i in enumerate(order)
        }
        heard: dict[int, list[Event]] = {place: [] for place in running}
        while running:
            place = choice.choice(sorted(running))
            if choice.random() < 0.01:
                running.pop(place).close()  # type: ignore[attr-defined]
                continue
            heard[place].append(next(running[place]))
            if isinstance(heard[place][-1], Finished):
                running.pop(place)
                assert text_of(heard[place]) == expected[order[place]]
                ended += 1
    assert 8 < ended < 32


def test_answers_drafted_by_one_model_in_turns_are_those_of_each_alone(tiny_qwen2) -> None:
    prefix = PrefixCache(tiny_qwen2.runner)
    small = GreedyDraftModel(tiny_qwen2)
    requests = [rewrite("Rename width."), rewrite("Be brief.", source=None), rewrite("Go.")]
    heard = in_turns(*(generate(tiny_qwen2, small, prefix, r, never) for r in requests))
    for request, events in zip(requests, heard, strict=True):
        assert text_of(events) == alone(tiny_qwen2, request)
    assert any(stats_of(events).accepted_by_origin.get("model", 0) for events in heard)


@pytest.mark.parametrize("seed", range(4))
def test_a_draft_model_that_lies_changes_no_text_in_any_order_of_turns_and_cancels(
    tiny_target, seed
) -> None:
    choice = random.Random(seed)
    temperature = 0.9 if seed % 2 else 0.0
    requests = [rewrite(words) for words in ("Rename width.", "Go.", "Be brief.")]
    requests = [replace(r, temperature=temperature, seed=seed) for r in requests]
    vocabulary = tiny_target.tokenizer.get_vocab_size()
    expected, liars = [], []
    for request in requests:
        text = alone(tiny_target, request)
        answer = tiny_target.tokenizer.encode(text).ids
        prompt = tiny_target.chat.encode_prompt(request)
        expected.append(text)
        liars.append(LyingModel(prompt, answer, vocabulary, seed))
    prefix = PrefixCache(tiny_target.runner)
    order = [0, 1, 2, 0, 1]
    running = {
        place: generate(tiny_target, liars[i], prefix, requests[i], never)
        for place, i in enumerate(order)
    }
    heard: dict[int, list[Event]] = {place: [] for place in running}
    ended = 0
    while running:
        place = choice.choice(sorted(running))
        if len(running) == len(order) and choice.random() < 0.05:
            running.pop(place).close()  # type: ignore[attr-defined]
            continue
        heard[place].append(next(running[place]))
        if isinstance(heard[place][-1], Finished):
            running.pop(place)
            assert text_of(heard[place]) == expected[order[place]]
            ended += 1
    assert ended >= 4
    assert sum(liar.asked for liar in liars) > 0


def test_only_the_time_of_its_own_steps_is_an_answers(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(engine.generation.time, "perf_counter", lambda: now[0])

    def steps() -> Iterator[str]:
        for name, seconds in (("a", 1.0), ("b", 2.5)):
            now[0] += seconds
            yield name

    seen = []
    for step in timed(steps()):
        now[0] += 100.0  # somebody else's turn
        seen.append(step)
    assert seen == [("a", 1.0), ("b", 2.5)]


def test_the_statistics_do_not_count_the_others_steps(tiny_qwen2, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(engine.generation.time, "perf_counter", lambda: now[0])
    prefix = PrefixCache(tiny_qwen2.runner)
    events = []
    for event in generate(tiny_qwen2, None, prefix, rewrite("Go."), never):
        now[0] += 100.0
        events.append(event)
    assert len(events) > 10
    stats = stats_of(events)
    assert stats.prefill_seconds == stats.decode_seconds == 0.0
