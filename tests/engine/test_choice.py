"""Every architecture is served by a runner that gives transformers' own greedy tokens."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from accelerate import dispatch_model
from transformers import AutoConfig, AutoModelForCausalLM

from engine import choice, loader
from engine.__main__ import RUNNERS
from engine.choice import can_roll_back, runner_of
from engine.core import EngineError
from engine.draft_model import GreedyDraftModel
from engine.eager import EagerRunner
from engine.loader import LoadedModel, load_model
from engine.plain import PlainRunner
from engine.prefix import PrefixCache
from engine.runner import Runner
from tests.tiny import make_model, make_tokenizer, save_tiny_model

SHAPE: dict[str, Any] = {
    "vocab_size": 400, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": None,
    "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
GPT: dict[str, Any] = {"vocab_size": 400, "n_embd": 32, "n_layer": 2, "n_head": 4}
WINDOW = {"sliding_window": 8}

ROLLED_BACK: dict[str, dict[str, Any]] = {
    "qwen2": {**SHAPE, "use_sliding_window": True, "max_window_layers": 1, **WINDOW},
    "mistral": {**SHAPE, **WINDOW},
    "gemma2": {**SHAPE, "head_dim": 8, **WINDOW},
    "gemma3_text": {**SHAPE, "head_dim": 8, **WINDOW},
    "starcoder2": {**SHAPE, **WINDOW},
    "gpt_oss": {
        **SHAPE, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, **WINDOW,
    },
    "qwen3_moe": {
        **SHAPE, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16,
    },
    "mixtral": {**SHAPE, "num_local_experts": 2},
    "phi3": SHAPE,
    "olmo2": SHAPE,
    "cohere": SHAPE,
    "granite": SHAPE,
    "gpt_neox": SHAPE,
    "gpt2": {**GPT, "n_positions": 512, "bos_token_id": None, "eos_token_id": None},
    "bloom": {"vocab_size": 400, "hidden_size": 32, "n_layer": 2, "n_head": 4},
}  # fmt: skip

STATEFUL: dict[str, dict[str, Any]] = {
    "mamba": {"vocab_size": 400, "hidden_size": 32, "state_size": 8, "num_hidden_layers": 2},
    "mamba2": {
        "vocab_size": 400, "hidden_size": 32, "state_size": 8, "num_heads": 4, "head_dim": 16,
        "n_groups": 1, "num_hidden_layers": 2,
    },
    "rwkv": {
        "vocab_size": 400, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32,
    },
    "falcon_h1": {
        **SHAPE, "head_dim": 8, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8,
        "mamba_d_state": 8,
    },
    "qwen3_next": {
        **SHAPE, "head_dim": 8, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 2,
        "num_experts_per_tok": 1, "moe_intermediate_size": 16,
        "shared_expert_intermediate_size": 16,
    },
}  # fmt: skip

PROMPT = [(i * 37) % 300 + 5 for i in range(21)]
LENGTH = 20


def tiny(kind: str, shape: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **shape)).eval()
    for parameter in model.parameters():
        parameter.data.mul_(3)  # a model that is decided
    return model


def generated(model: Any) -> list[int]:
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    answer = model.generate(torch.tensor([PROMPT]), max_new_tokens=LENGTH, do_sample=False)
    return answer[0, len(PROMPT) :].tolist()


def rewritten(runner: Runner, likely: list[int], seed: int = 1) -> list[int]:
    """Decode greedily under an adversary whose drafts are right, wrong or half right."""
    cache = runner.new_cache(64)
    for _ in runner.prefill(cache, PROMPT[:-1]):
        pass
    adversary = random.Random(seed)
    answer: list[int] = []
    last = PROMPT[-1]
    while len(answer) < LENGTH:
        room = min(runner.max_draft, 5)
        draft = adversary.choices(range(5, 300), k=adversary.randint(0, room))
        right = adversary.randint(0, len(draft))
        draft[:right] = likely[len(answer) : len(answer) + right]
        chosen = runner.verify(cache, [last, *draft]).argmax(dim=-1).tolist()
        accepted = 0
        while accepted < len(draft) and draft[accepted] == chosen[accepted]:
            accepted += 1
        cache.rollback(len(draft) - accepted)
        answer += chosen[: accepted + 1]
        last = answer[-1]
    return answer[:LENGTH]


@pytest.mark.parametrize("kind", ROLLED_BACK)
def test_drafts_change_no_token_of_any_architecture(kind) -> None:
    model = tiny(kind, ROLLED_BACK[kind])
    expected = generated(model)
    runner = runner_of(model, 512, None)
    assert (runner.name, runner.notice) == ("eager", "")
    # Beyond the sliding windows, too, which are shorter than the prompt.
    for seed in range(3):
        assert rewritten(runner, expected, seed) == expected


@pytest.mark.parametrize("kind", STATEFUL)
def test_a_model_whose_state_cannot_be_rolled_back_runs_without_drafts(kind) -> None:
    model = tiny(kind, STATEFUL[kind])
    expected = generated(model)
    runner = runner_of(model, 512, None)
    assert (runner.name, runner.max_draft, runner.exact) == ("plain", 0, True)
    assert runner.notice.startswith(f"{kind} models keep a state that cannot be rolled back")
    assert rewritten(runner, expected) == expected


def test_a_model_that_does_not_say_that_it_keeps_a_state_is_found_out() -> None:
    model = tiny("mamba", STATEFUL["mamba"])
    model._is_stateful = False
    assert not can_roll_back(model, EagerRunner(model, 512))


def test_a_model_that_remembers_refused_tokens_is_found_out() -> None:
    class Forgetful(EagerRunner):
        def verify(self, cache, tokens):
            rows = super().verify(cache, tokens)
            cache.rollback = lambda count: None  # refused tokens stay
            return rows

    model = tiny("gpt_neox", SHAPE)
    for dtype in (torch.float32, torch.bfloat16):
        assert can_roll_back(model.to(dtype), EagerRunner(model, 512))
        assert not can_roll_back(model, Forgetful(model, 512))


def test_a_trial_for_which_memory_is_short_says_nothing_about_the_model(monkeypatch) -> None:
    def fail(*args) -> None:
        raise MemoryError

    model = tiny("gpt_neox", SHAPE)
    runner = EagerRunner(model, 512)
    monkeypatch.setattr(runner, "verify", fail)
    with pytest.raises(MemoryError):
        can_roll_back(model, runner)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_trial_is_sharp_in_halves_too(dtype) -> None:
    model = tiny("gpt_neox", SHAPE).to(dtype)
    assert can_roll_back(model, EagerRunner(model, 512))
    recurrent = tiny("mamba", STATEFUL["mamba"]).to(dtype)
    recurrent._is_stateful = False
    assert not can_roll_back(recurrent, EagerRunner(recurrent, 512))


def test_a_model_whose_state_is_out_of_reach_is_refused() -> None:
    model = tiny("recurrent_gemma", {**SHAPE, "lru_width": 32})
    with pytest.raises(EngineError, match="choose another model") as caught:
        runner_of(model, 512, None)
    assert caught.value.code == "unsupported_model"


def test_nothing_of_a_plain_sequence_is_kept() -> None:
    runner = PlainRunner(make_model("llama", 400), 512)
    prefix = PrefixCache(runner)
    cache = prefix.take(PROMPT, 64)
    for _ in runner.prefill(cache, PROMPT):
        pass
    prefix.give_back(cache, PROMPT)
    assert (prefix.sequences, prefix.take(PROMPT, 64).length) == (0, 0)
    runner.verify(cache, PROMPT)
    with pytest.raises(ValueError, match="rolled back"):
        cache.rollback(1)


def test_a_plain_model_is_no_draft_model() -> None:
    runner = PlainRunner(make_model("llama", 400), 512)
    model = LoadedModel("small", runner, None, None, frozenset())  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="small") as caught:
        GreedyDraftModel(model)
    assert caught.value.code == "draft_model_mismatch"


@pytest.mark.parametrize("name", ["eager", "plain"])
def test_a_runner_can_be_asked_for_by_name(name, tmp_path) -> None:
    runner = load_model("m", save_tiny_model(tmp_path), "cpu", "float32", runner=name).runner
    assert (runner.name, runner.notice) == (name, "")


@pytest.mark.parametrize(
    ("dtype", "runner", "says"),
    [
        (None, "fast", "There is no runner 'fast'"),
        ("int8", "eager", "do not go together"),
        ("float32", "cpu-int8", "do not go together"),
    ],
)
def test_choices_that_are_not_possible_are_refused(dtype, runner, says, tmp_path) -> None:
    with pytest.raises(EngineError, match=says) as caught:
        load_model("m", save_tiny_model(tmp_path), "cpu", dtype, runner=runner)
    assert caught.value.code == "invalid_request"


def test_the_command_line_knows_the_runners_by_name() -> None:
    assert set(loader.RUNNERS) == set(RUNNERS)
    assert {choice.EAGER, choice.PLAIN} <= set(RUNNERS)


def test_a_model_that_is_spread_over_devices_stays_exact() -> None:
    """accelerate's hooks, which move states from device to device, on the one there is."""
    alone = EagerRunner(make_model("qwen2", 400), 512)
    model = make_model("qwen2", 400)
    parts = {"model.embed_tokens": "cpu", "model.layers.0": "cpu", "model.layers.1": "cpu",
             "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}  # fmt: skip
    spread = EagerRunner(dispatch_model(model, parts, force_hooks=True), 512)
    expected = rewritten(alone, [])
    for seed in range(3):
        assert rewritten(spread, expected, seed) == expected


def test_tokens_are_those_of_a_tokenizer_with_room_for_the_trial() -> None:
    assert len(make_tokenizer()) > max(choice.REST)
