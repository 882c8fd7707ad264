"""Scores on a device are those of the CPU."""

import pytest
import torch

from lit_gans.metrics import FrechetInceptionDistance, InceptionScore, KernelInceptionDistance
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.digits import DigitsExtractor


def test_scores_are_computed_on_the_device_and_are_those_of_the_cpu(device):
    generator = torch.Generator().manual_seed(0)
    real, fake = torch.randint(0, 256, (2, 80, 1, 16, 16), generator=generator, dtype=torch.uint8)
    values = []
    for where in (torch.device("cpu"), device):
        kid = KernelInceptionDistance(subsets=4, subset_size=20)
        scores = {"fid": FrechetInceptionDistance(), "is": InceptionScore(splits=2), "kid": kid}
        evaluator = Evaluator(DigitsExtractor(), scores, 80, 40, 0, where)
        evaluator.add_real(real)
        values.append(evaluator.measure(fake.to(where)))
        assert {parameter.device.type for parameter in evaluator.extractor.parameters()} == {where.type}
    assert values[0].keys() == values[1].keys()
    assert len(values[0]) >= 3
    for name, value in values[0].items():
        assert values[1][name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
