from __future__ import annotations

import random
import time
import zlib
from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from engine.kv_cache import GROWTH, KVCache, rounded_up
from engine.layers import chunks
from engine.prefix import CPU_BUDGET, DEVICE_BUDGET, WORTH_A_COPY, WORTH_A_WAIT, PrefixCache
from tests.engine.adversary import random_parents
from tests.engine.memory import failing_allocations


def prefill(runner, cache: KVCache, prompt: Sequence[int]) -> None:
    for _ in runner.prefill(cache, prompt[cache.length :]):
        pass
    cache.check_integrity()
    assert cache.tokens == list(prompt)


def fill(prefix: PrefixCache, runner, prompt: list[int], exact: bool = True) -> int:
    """Prefill a prompt and give its cache back; return how many tokens were reused."""
    cache = prefix.take(prompt, room=len(prompt), exact=exact)
    reused = cache.length
    prefill(runner, cache, prompt)
    prefix.give_back(cache, prompt)
    return reused


def assert_same_states(cache: KVCache, other: KVCache) -> None:
    assert cache.tokens == other.tokens
    for a, b in zip(cache.layers, other.layers, strict=True):
        for name in ("keys", "values"):
            one, two = getattr(a, name), getattr(b, name)
            assert torch.equal(one[:, :, : cache.length], two[:, :, : cache.length])


class FakeRunner:
    """Writes states that tell all that a row's states may depend on.

    A row's states follow from the tokens up to it. Where `rowwise` is False they also
    follow from how many rows stood beside it, and from whether it was prefilled.
    """

    device = "cpu"
    prefill_chunk = 16
    layers = 2
    token_bytes = layers * 2 * 2 * 4

    def __init__(self, rowwise: bool = True) -> None:
        self._rowwise = rowwise

    def new_cache(self, capacity: int, exact: bool = True) -> KVCache:
        grid = 1 if self._rowwise or not exact else self.prefill_chunk
        return KVCache(self.layers, capacity, exact or self._rowwise, grid)

    def prefill(self, cache: KVCache, tokens: Sequence[int]) -> Iterator[float]:
        done = 0
        for part in chunks(tokens, cache.length, self.prefill_chunk):
            self._append(cache, part, len(part))
            done += len(part)
            yield done

    def decode(self, cache: KVCache, tokens: Sequence[int]) -> None:
        self._append(cache, tokens, -1)

    def _append(self, cache: KVCache, tokens: Sequence[int], way: int) -> None:
        if not tokens:
            return
        beside = 0 if cache.grid == 1 else way
        states = []
        for token in tokens:
            cache.tokens.append(token)
            states.append([float(zlib.crc32(repr(cache.tokens).encode()) % 65521), beside])
        rows = torch.tensor(states)[None, None]
        for index in range(self.layers):
            cache.update(rows + index, -rows - index, index)


segments = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from([1, 40, 100])), min_size=1, max_size=4
).map(lambda runs: [token for token, count in runs for _ in range(count)])


class AnyOrder(RuleBasedStateMachine):
    """Takes and gives back in any order, beside a model of what has to be kept."""

    @initialize(rowwise=st.booleans(), units=st.sampled_from([0, 1, 2, 3, 6]))
    def begin(self, rowwise: bool, units: int) -> None:
        self.runner = FakeRunner(rowwise)
        self.budget = units * GROWTH * FakeRunner.token_bytes
        self.prefix = PrefixCache(self.runner, self.budget)  # type: ignore[arg-type]
        self.model: list[tuple[bool, list[int]]] = []  # least recently used first
        self.taken: list[tuple[KVCache, list[int]]] = []

    @rule(prompt=segments, exact=st.booleans(), room=st.sampled_from([1, 300, 900]))
    def take(self, prompt: list[int], exact: bool, room: int) -> None:
        fresh = self.runner.new_cache(1, exact)
        expected = self._model_take(prompt, fresh)
        cache = self.prefix.take(prompt, room, exact)
        assert cache.tokens == prompt[:expected]
        assert (cache.exact, cache.grid) == (fresh.exact, fresh.grid)
        self.taken.append((cache, prompt))

    @rule(data=st.data(), answer=segments | st.just([]), whole=st.booleans())
    def give_back(self, data: st.DataObject, answer: list[int], whole: bool) -> None:
        if not self.taken:
            return
        cache, prompt = self.taken.pop(data.draw(st.integers(0, len(self.taken) - 1)))
        steps = self.runner.prefill(cache, prompt[cache.length :])
        for _ in steps:
            if not whole:
                break  # cancelled after a chunk
        if cache.length == len(prompt):
            fresh = self.runner.new_cache(1, cache.exact)
            prefill(self.runner, fresh, prompt)
            assert_same_states(cache, fresh)
            self.runner.decode(cache, answer)
        usable = cache.tokens if cache.grid == 1 else prompt[: cache.length]
        self._model_give_back(cache.exact, usable[: len(usable) // cache.grid * cache.grid])
        if data.draw(st.booleans()):  # a pass that failed half way
            cache.layers[0].length += 1  # type: ignore[attr-defined]
        self.prefix.give_back(cache, prompt)

    @invariant()
    def the_budget_holds_and_what_is_kept_is_what_the_model_keeps(self) -> None:
        if not hasattr(self, "prefix"):
            return
        kept = self.prefix._kept
        assert sum(cache.bytes for cache in kept) == self.prefix.bytes <= self.budget
        assert len(kept) == self.prefix.sequences
        assert [(cache.exact, cache.tokens) for cache in kept] == self.model
        for cache in kept:
            cache.check_integrity()
        buffers = [
            layer.keys.data_ptr()
            for cache in [*kept, *(cache for cache, _ in self.taken)]
            for layer in cache.layers
            if layer.is_initialized and layer.keys is not None
        ]
        assert len(set(buffers)) == len(buffers)

    def _model_take(self, prompt: list[int], like: KVCache) -> int:
        best = None
        for place, (exact, tokens) in enumerate(self.model):
            if exact != like.exact:
                continue
            same = next(
                (i for i, (a, b) in enumerate(zip(prompt, tokens, strict=False)) if a != b),
                min(len(prompt), len(tokens)),
            )
            same = same // like.grid * like.grid
            if same:
                best = max(best or (0, 0, 0), (same, -len(tokens), place))
        lent = 0
        for cache, asked in self.taken:
            if (cache.exact, cache.grid) == (like.exact, like.grid):
                usable = cache.tokens if like.grid == 1 else cache.tokens[: len(asked)]
                same = next(
                    (i for i, (a, b) in enumerate(zip(prompt, usable, strict=False)) if a != b),
                    min(len(prompt), len(usable)),
                )
                lent = max(lent, same // like.grid * like.grid)
        if best is None or lent > best[0]:
            return lent
        same, length, place = best
        used = self.model.pop(place)
        if -length - same > WORTH_A_COPY:
            self.model.append(used)
        return same

    def _model_give_back(self, exact: bool, tokens: list[int]) -> None:
        def size(tokens: list[int]) -> int:
            return rounded_up(len(tokens)) * FakeRunner.token_bytes

        if not tokens:
            return
        for other in self.model:
            if other[0] == exact and other[1][: len(tokens)] == tokens:
                self.model.remove(other)
                self.model.append(other)
                return
        if size(tokens) > self.budget:
            return
        self.model = [
            other
            for other in self.model
            if other[0] != exact or tokens[: len(other[1])] != other[1]
        ]
        self.model.append((exact, tokens))
        while sum(size(tokens) for _, tokens in self.model) > self.budget:
            del self.model[0]


AnyOrder.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestAnyOrder = AnyOrder.TestCase


real_prompts = st.lists(
    st.tuples(st.integers(5, 8), st.sampled_from([1, 30, 70, 130])), min_size=1, max_size=3
).map(lambda runs: [token + i % 3 for token, count in runs for i in range(count)])


@pytest.mark.parametrize("fixture", ["tiny_qwen2_int8", "tiny_qwen2"])
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    requests=st.lists(
        st.tuples(real_prompts, st.lists(st.integers(5, 8), max_size=40), st.booleans()),
        min_size=2,
        max_size=5,
    )
)
def test_what_is_reused_has_the_very_states_of_a_fresh_prefill(fixture, request, requests) -> None:
    runner = request.getfixturevalue(fixture).runner
    prefix = PrefixCache(runner)
    before: list[int] = []
    for prompt, answer, goes_on in requests:
        if goes_on:  # a chat: the last prompt and its answer come again
            prompt = before[-400:] + prompt
        cache = prefix.take(prompt, room=len(prompt))
        assert cache.tokens == prompt[: cache.length]
        reused = runner.new_cache(1)
        prefill(runner, reused, prompt)
        prefill(runner, cache, prompt)
        assert_same_states(cache, reused)
        choice = random.Random(len(answer))
        for start in range(0, len(answer), 7):
            part = answer[start : start + 7]
            parents = random_parents(choice, len(part) - 1)
            path, length = [0], cache.length
            runner.verify(cache, part, parents)
            while following := [i + 1 for i, p in enumerate(parents) if p == path[-1] - 1]:
                path.append(choice.choice(following))
            cache.keep(path, length)
        before = list(cache.tokens)
        prefix.give_back(cache, prompt)


@pytest.mark.parametrize(
    ("same", "reused"), [(0, 0), (1, 0), (63, 0), (64, 64), (127, 64), (128, 128), (200, 192)]
)
def test_whole_chunks_of_the_common_beginning_are_reused(tiny_qwen2, same, reused) -> None:
    runner = tiny_qwen2.runner
    assert runner.prefill_chunk == 64
    prefix = PrefixCache(runner)
    assert fill(prefix, runner, [5] * 200) == 0
    assert fill(prefix, runner, [5] * same + [6] * (210 - same)) == reused


@pytest.mark.parametrize("same", [0, 1, 63, 64, 199, 200])
def test_with_equal_rows_the_common_beginning_is_reused_to_the_token(tiny_qwen2_int8, same) -> None:
    runner = tiny_qwen2_int8.runner
    prefix = PrefixCache(runner)
    assert fill(prefix, runner, [5] * 200) == 0
    assert fill(prefix, runner, [5] * same + [6] * (210 - same)) == same


@pytest.mark.parametrize(("rowwise", "reused"), [(True, 200), (False, 64)])
def test_tokens_of_the_answer_are_reused_only_where_rows_are_equal(rowwise, reused) -> None:
    runner = FakeRunner(rowwise)
    prefix = PrefixCache(runner)  # type: ignore[arg-type]
    cache = prefix.take([5] * 70, room=300)
    prefill(runner, cache, [5] * 70)
    runner.decode(cache, [5] * 130)
    prefix.give_back(cache, [5] * 70)
    assert fill(prefix, runner, [5] * 210) == reused


def test_exact_and_other_sequences_are_never_mixed(tiny_qwen2) -> None:
    runner = tiny_qwen2.runner
    prefix = PrefixCache(runner)
    assert fill(prefix, runner, [5] * 130, exact=False) == 0
    assert fill(prefix, runner, [5] * 130, exact=True) == 0
    assert prefix.sequences == 2
    assert fill(prefix, runner, [5] * 130, exact=False) == 130
    assert fill(prefix, runner, [5] * 130, exact=True) == 128


@pytest.mark.parametrize(("behind", "left"), [(WORTH_A_COPY, 0), (WORTH_A_COPY + 1, 1)])
def test_a_sequence_with_much_to_lose_is_copied_from_and_else_moved(behind, left) -> None:
    runner = FakeRunner()
    prefix = PrefixCache(runner)  # type: ignore[arg-type]
    fill(prefix, runner, [1] * (100 + behind))
    assert prefix.take([1] * 100, room=100).length == 100
    assert prefix.sequences == left


def test_the_memory_of_a_huge_prompt_is_not_handed_to_a_small_one(tiny_qwen2) -> None:
    runner = tiny_qwen2.runner
    prefix = PrefixCache(runner)
    fill(prefix, runner, [5] * 10 * GROWTH)
    cache = prefix.take([6] * 10, room=10)
    assert cache.length == 0
    assert {layer.capacity for layer in cache.layers} == {GROWTH}


@pytest.mark.parametrize(("rowwise", "usable"), [(True, 130), (False, 96)])
def test_a_sequence_in_use_is_copied_from_and_never_handed_out(rowwise, usable) -> None:
    runner = FakeRunner(rowwise)
    prefix = PrefixCache(runner, 0)  # type: ignore[arg-type]
    first = prefix.take([5] * 100, room=200)
    prefill(runner, first, [5] * 100)
    runner.decode(first, [5] * 30)
    second = prefix.take([5] * 300, room=300)
    assert second is not first
    assert second.length == usable
    prefill(runner, second, [5] * 300)
    fresh = runner.new_cache(1)
    prefill(runner, fresh, [5] * 300)
    assert_same_states(second, fresh)
    assert first.tokens == [5] * 130
    for cache in (first, second):
        prefix.give_back(cache, [5] * 100)
    assert prefix.take([5] * 300, room=300).length == 0


def test_a_sequence_in_use_is_copied_from_in_the_middle_of_a_chunk(tiny_qwen2_int8) -> None:
    runner = tiny_qwen2_int8.runner
    prefix = PrefixCache(runner)
    prompt = [5 + i % 7 for i in range(3 * runner.prefill_chunk)]
    first = prefix.take(prompt, room=10)
    steps = runner.prefill(first, prompt)
    done = 0.0
    while done <= runner.prefill_chunk:
        done = next(steps)
    assert done % runner.prefill_chunk
    second = prefix.take(prompt, room=10)
    assert second.length == runner.prefill_chunk
    fresh = runner.new_cache(1)
    prefill(runner, fresh, prompt)
    for _ in steps:
        pass
    prefill(runner, second, prompt)
    assert_same_states(first, fresh)
    assert_same_states(second, fresh)


def test_it_is_worth_waiting_only_for_much_that_is_still_coming() -> None:
    runner = FakeRunner(rowwise=False)
    prefix = PrefixCache(runner)  # type: ignore[arg-type]
    prompt = [5] * 200
    assert not prefix.is_being_read(prompt)
    first = prefix.take(prompt, room=200)
    assert prefix.is_being_read([5] * 300)
    assert prefix.is_being_read([5] * 100 + [6])
    assert not prefix.is_being_read([5] * WORTH_A_WAIT + [6] * 100)
    assert not prefix.is_being_read([6] * 300)
    assert not prefix.is_being_read(prompt, exact=False)
    waited = 0
    for _ in runner.prefill(first, prompt):
        if not prefix.is_being_read(prompt):
            break
        waited += 1
    # 192 tokens can be reused, so the last 64 of them are not waited for.
    assert waited == (192 - WORTH_A_WAIT) // runner.prefill_chunk - 1
    prefix.give_back(first, prompt)
    assert not prefix.is_being_read(prompt)


def test_what_is_kept_already_is_not_waited_for() -> None:
    runner = FakeRunner()
    prefix = PrefixCache(runner)  # type: ignore[arg-type]
    fill(prefix, runner, [5] * 200 + [6] * 200)
    prefix.take([5] * 200 + [7] * 200, room=400)
    assert not prefix.is_being_read([5] * 200 + [6] * 200)
    assert prefix.is_being_read([5] * 200 + [7] * 100)


def test_without_memory_for_a_copy_of_one_in_use_the_answer_reads_for_itself(monkeypatch) -> None:
    runner = FakeRunner()
    prefix = PrefixCache(runner)  # type: ignore[arg-type]
    prefill(runner, prefix.take([1] * 100, room=100), [1] * 100)
    with failing_allocations(monkeypatch, 1):
        cache = prefix.take([1] * 100, room=100)
    assert cache.length == 0
    prefill(runner, cache, [1] * 100)


def test_a_beginning_that_is_given_back_makes_the_whole_recently_used() -> None:
    runner = FakeRunner()
    prefix = PrefixCache(runner)  # type: ignore[arg-type]
    fill(prefix, runner, [1] * 300)
    beginning = prefix.take([1] * 100, room=100)
    fill(prefix, runner, [2] * 300)
    prefix.give_back(beginning, [1] * 100)
    assert [cache.tokens for cache in prefix._kept] == [[2] * 300, [1] * 300]


def test_a_sequence_larger_than_the_budget_costs_no_other_its_place() -> None:
    runner = FakeRunner()
    prefix = PrefixCache(runner, 2 * GROWTH * FakeRunner.token_bytes)  # type: ignore[arg-type]
    fill(prefix, runner, [1] * 200)
    fill(prefix, runner, [2] * (2 * GROWTH + 1))
    assert prefix.sequences == 1
    assert fill(prefix, runner, [1] * 200) == 200


def test_unused_room_is_let_go_before_a_sequence_is() -> None:
    runner = FakeRunner()
    prefix = PrefixCache(runner, 2 * GROWTH * FakeRunner.token_bytes)  # type: ignore[arg-type]
    for token in (1, 2):
        cache = prefix.take([token] * 100, room=8 * GROWTH)
        prefill(runner, cache, [token] * 100)
        prefix.give_back(cache, [token] * 100)
    assert prefix.sequences == 2
    assert prefix.bytes == 2 * GROWTH * FakeRunner.token_bytes


@pytest.mark.parametrize(("device", "budget"), [("cpu", CPU_BUDGET), ("cuda:0", DEVICE_BUDGET)])
def test_the_budget_follows_the_device(device, budget) -> None:
    runner = FakeRunner()
    runner.device = device
    assert PrefixCache(runner)._budget == budget  # type: ignore[arg-type]


def test_twenty_sequences_of_thirty_thousand_tokens_are_compared_at_once() -> None:
    runner = FakeRunner()
    prefix = PrefixCache(runner)  # type: ignore[arg-type]
    prompt = [1000 + i % 5000 for i in range(30_000)]
    for last in range(20):
        cache = KVCache(1, 1)
        cache.tokens = [*map(int, prompt[:-1]), last]
        cache.rollback(0)
        prefix._kept.append(cache)
    seconds = []
    for _ in range(5):
        started = time.perf_counter()
        found = prefix._longest(prompt, runner.new_cache(1))
        seconds.append(time.perf_counter() - started)
        assert found is not None
        assert found[0] == 29_999
    assert min(seconds) < 0.1


def test_without_memory_for_a_copy_the_kept_sequence_itself_is_used(monkeypatch) -> None:
    runner = FakeRunner()
    for allowed in range(2 * FakeRunner.layers):
        prefix = PrefixCache(runner)  # type: ignore[arg-type]
        fill(prefix, runner, [1] * 300)
        with failing_allocations(monkeypatch, allowed):
            cache = prefix.take([1] * 100, room=200)
        assert cache.length == 100
        assert prefix.sequences == 0
        prefill(runner, cache, [1] * 100)
        prefix.give_back(cache, [1] * 100)
        assert fill(prefix, runner, [1] * 120) == 100


def test_without_memory_for_room_the_other_sequences_go_and_this_one_stays(monkeypatch) -> None:
    runner = FakeRunner()
    prefix = PrefixCache(runner)  # type: ignore[arg-type]
    fill(prefix, runner, [2] * 300)
    fill(prefix, runner, [1] * 300)
    with (
        failing_allocations(monkeypatch, 3),
        pytest.raises(RuntimeError, match="can't allocate memory"),
    ):
        prefix.take([1] * 300, room=9000)
    assert prefix.sequences == 1
    fresh = runner.new_cache(1)
    prefill(runner, fresh, [1] * 300)
    cache = prefix.take([1] * 300, room=300)
    assert_same_states(cache, fresh)


def test_a_sequence_that_cannot_even_be_trimmed_is_not_kept(monkeypatch) -> None:
    runner = FakeRunner()
    prefix = PrefixCache(runner, GROWTH * FakeRunner.token_bytes)  # type: ignore[arg-type]
    cache = prefix.take([1] * 10, room=4 * GROWTH)
    prefill(runner, cache, [1] * 10)
    with failing_allocations(monkeypatch, 0):
        prefix.give_back(cache, [1] * 10)
    assert (prefix.sequences, prefix.bytes) == (0, 0)
    assert fill(prefix, runner, [1] * 10) == 0
    assert fill(prefix, runner, [1] * 10) == 10
