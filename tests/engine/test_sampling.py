from __future__ import annotations

import pytest
import torch

from engine.sampling import Sampling, choose, gumbel_noise, log_probabilities


def test_greedy_takes_the_first_largest() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0], [3.0, 1.0, 2.0]])
    assert choose(logits, 10, Sampling()) == [1, 0]


def test_the_choice_at_a_position_does_not_depend_on_the_other_rows() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    sampling = Sampling(temperature=1.0, seed=3)
    together = choose(logits, 100, sampling)
    alone = [choose(logits[row : row + 1], 100 + row, sampling)[0] for row in range(6)]
    assert together == alone


def test_another_seed_or_position_gives_other_noise() -> None:
    noise = gumbel_noise(1, 5, 100)
    assert torch.equal(noise, gumbel_noise(1, 5, 100))
    assert not torch.equal(noise, gumbel_noise(1, 6, 100))
    assert not torch.equal(noise, gumbel_noise(2, 5, 100))
    assert torch.isfinite(noise).all()


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_samples_come_closer_to_the_target_distribution_as_they_grow(temperature) -> None:
    logits = torch.tensor([[1.0, 0.0, -1.0, 2.0, 0.5, -3.0, 0.3, 1.5, -0.5, 0.0]])
    sampling = Sampling(temperature=temperature, seed=11)
    target = torch.softmax(logits[0] / temperature, dim=-1)

    def distance(samples: int) -> float:
        counts = torch.zeros(10)
        for position in range(samples):
            counts[choose(logits, position, sampling)[0]] += 1
        return float((counts / samples - target).abs().sum())

    near, far = distance(8000), distance(80)
    assert near < 0.04
    assert near < far


@pytest.mark.parametrize("temperature", [1e-320, 1e-45, 1e-38, 1e-6])
def test_a_tiny_temperature_is_greedy(temperature) -> None:
    logits = torch.tensor([[-30.0, 40.0, 39.9], [90.0, -80.0, 0.0]])
    assert choose(logits, 0, Sampling(temperature, seed=5)) == [1, 0]


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
    kept = log_probabilities(p.log(), Sampling(temperature=1.0, top_p=0.8))
    assert torch.isfinite(kept).tolist() == [[True, True, False, False]]
    only = log_probabilities(p.log(), Sampling(temperature=1.0, top_p=0.01))
    assert torch.isfinite(only).tolist() == [[True, False, False, False]]


def test_top_p_never_lets_a_masked_token_through() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    sampling = Sampling(temperature=1.0, top_p=0.8, seed=1)
    drawn = {choose(logits, position, sampling)[0] for position in range(300)}
    assert drawn == {0, 1}
