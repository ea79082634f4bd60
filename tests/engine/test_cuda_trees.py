"""Token trees on the runner of captured passes; on the CPU the same passes are run."""

from __future__ import annotations

import random

import pytest
import torch

from engine.chances import Acceptance
from engine.cost import even
from engine.cuda.runner import CudaGraphRunner
from engine.loop import verify_loop
from engine.sampling.settings import Sampling
from tests.engine.adversary import AdversarialTrees, Everything, random_parents
from tests.engine.test_cuda import ids_of, needs_gpu, read, runner_of
from tests.tiny import make_model


@pytest.fixture(scope="module", params=["qwen2-float32", "llama-float32", "qwen2-bfloat16"])
def runner(request) -> CudaGraphRunner:
    return runner_of(*request.param.split("-"))


def paths_of(parents: list[int]) -> list[list[int]]:
    paths = [[0]]
    for index, parent in enumerate(parents):
        paths.append([*paths[parent + 1], index + 1])
    return paths


@pytest.mark.parametrize("length", [10, 225, 250, 255, 256, 500, 990, 1015])
def test_a_row_of_a_tree_is_the_row_of_a_pass_of_its_own_path(runner, length) -> None:
    choice = random.Random(length)
    prompt = ids_of(length, length)
    cache = read(runner, prompt)
    states = runner._workspace.states
    for count in (3, 8, runner.max_draft):
        parents = random_parents(choice, count)
        tokens = ids_of(count + 1, choice.randrange(1000))
        paths = paths_of(parents)
        expected = {}
        for row in {count, choice.randrange(count), paths.index(max(paths, key=len))}:
            path = paths[row]
            logits = runner.verify(cache, [tokens[i] for i in path])
            kept = states[:, :, :, length : length + len(path)].clone()
            expected[row] = logits, kept
            cache.rollback(len(path))
        for row, (rows, kept) in expected.items():
            path = paths[row]
            logits = runner.verify(cache, tokens, parents)
            assert torch.equal(logits[path], rows)
            cache.keep(path, length)
            assert cache.tokens == [*prompt, *(tokens[i] for i in path)]
            assert torch.equal(states[:, :, :, length : length + len(path)], kept)
            cache.rollback(len(path))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_trees_never_change_a_token(runner, temperature) -> None:
    sampling = Sampling(temperature, seed=3)

    def written(cache, prompt, drafter) -> list[int]:
        policy = Everything(even(), Acceptance(), runner.max_draft)
        passes = verify_loop(runner, cache, prompt[-1], drafter, sampling, 40, policy)
        return [token for step in passes for token in step.tokens]

    prompts = [ids_of(length, length) for length in (40, 230)]
    for prompt in prompts:
        expected = written(read(runner, prompt[:-1]), prompt, None)
        for seed in range(2):
            cache = read(runner, prompt[:-1])
            drafter = AdversarialTrees(expected, 280, seed)
            assert written(cache, prompt, drafter) == expected
            cache.check_integrity()
            # What is kept after trees serves others too, also when it has left the workspace.
            read(runner, [5] * 30)
            copy = cache.copy_prefix(len(prompt) + 20, 100)
            plain = read(runner, prompt[:-1])
            for token in [prompt[-1], *expected[:20]]:
                runner.verify(plain, [token])
            plain.store()  # type: ignore[attr-defined]
            held = slice(0, len(prompt) + 20)
            ours, theirs = copy.stored, plain.stored  # type: ignore[attr-defined]
            assert torch.equal(ours[..., held, :], theirs[..., held, :])


def test_few_branches_and_many_are_passes_of_two_kinds() -> None:
    runner = runner_of()
    cache = read(runner, ids_of(20, 28))
    runner._passes.clear()
    for parents in ([-1, -1], [-1] * 9, [-1] * 10, [-1] * 31):
        runner.verify(cache, ids_of(len(parents) + 1, 29), parents)
        cache.keep([0], 20)
        cache.rollback(1)
    assert list(runner._passes) == [(32, 1024, 8), (32, 1024, 31)]
    with pytest.raises(ValueError, match="rows"):
        runner.verify(cache, ids_of(33, 29), [-1] * 32)


@needs_gpu
def test_captured_trees_never_change_a_token() -> None:
    model = make_model("qwen2", 300).to("cuda", torch.bfloat16)  # type: ignore[attr-defined]
    test_trees_never_change_a_token(CudaGraphRunner(model, 2000), 0.0)
