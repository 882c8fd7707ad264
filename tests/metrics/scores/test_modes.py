import math

import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.scores.modes import ModeCoverage


def mode_statistics(counts, num, min_samples):
    """Values of `num` samples, of which `counts` are in each mode and the others outside all modes."""
    metric = ModeCoverage(len(counts), min_samples)
    inside = torch.arange(len(counts)).repeat_interleave(torch.as_tensor(counts).long())
    modes = torch.cat([inside, torch.full((num - len(inside),), -1)])
    for batch in modes[torch.randperm(num, generator=torch.Generator().manual_seed(0))].split(97):
        metric.update(batch)
    return {name: value.item() for name, value in metric.compute().items()}


@pytest.mark.parametrize("num_modes", [1, 1000])
def test_a_uniform_generator_has_divergence_zero_and_all_modes(num_modes):
    statistics = mode_statistics(torch.full((num_modes,), 30.0), num=30 * num_modes, min_samples=20)
    assert statistics["modes_covered"] == num_modes
    assert statistics["high_quality"] == 1
    assert 0 <= statistics["kl_uniform"] < 1e-5


@pytest.mark.parametrize(
    ("counts", "divergence"),
    [
        ([0, 0, 0, 2500, 0, 0, 0, 0], math.log(8)),
        ([50, 0, 50, 0, 0, 50, 50, 0], math.log(2)),
        ([1, 3, 0, 4], sum(share * math.log(share * 4) for share in (1 / 8, 3 / 8, 1 / 2))),
    ],
)
def test_uneven_modes_have_the_divergence_of_its_definition(counts, divergence):
    statistics = mode_statistics(torch.tensor(counts), num=2 * sum(counts), min_samples=1)
    assert statistics["kl_uniform"] == pytest.approx(divergence)
    assert statistics["high_quality"] == 0.5


def test_no_sample_in_any_mode_is_infinitely_far():
    assert mode_statistics(torch.zeros(8), num=2500, min_samples=20) == {
        "modes_covered": 0,
        "high_quality": 0,
        "kl_uniform": math.inf,
    }


def test_no_samples_have_no_quality():
    metric = ModeCoverage(3)
    metric.update(torch.zeros(0, dtype=torch.int64))
    values = {name: value.item() for name, value in metric.compute().items()}
    assert math.isnan(values.pop("high_quality"))
    assert values == {"modes_covered": 0, "kl_uniform": math.inf}


@pytest.mark.parametrize(("min_samples", "covered"), [(1, 4), (19, 3), (20, 2), (21, 1), (31, 0)])
def test_a_mode_is_covered_by_the_least_number_of_samples_or_more(min_samples, covered):
    counts = torch.tensor([30.0, 20.0, 19.0, 1.0, 0.0])
    assert mode_statistics(counts, num=100, min_samples=min_samples)["modes_covered"] == covered


def test_an_index_that_is_no_mode_is_refused():
    metric = ModeCoverage(3)
    for index in (-2, 3):
        with pytest.raises(RefusedInput, match=r"expected -1 \(outside of all modes\) to 2"):
            metric.update(torch.tensor([0, index]))
    for numbers in ({"num_modes": 0}, {"num_modes": 3, "min_samples": 0}):  # every mode would count as covered
        with pytest.raises(RefusedInput, match="=0 must be at least 1"):
            ModeCoverage(**numbers)
