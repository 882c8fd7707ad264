"""The clock of a cell ends the training after the steps that it planned."""

import pytest

from lit_gans.benchmark.study.training import model_node, train


@pytest.mark.parametrize("batch_size", [8, 16])  # a larger batch than 8 has a first step of 8 images
def test_a_fast_training_times_all_its_steps(batch_size):
    timing = {"warmup": 1, "steps": 3, "seconds": 1000.0, "step_limit": 1000.0}
    settings = {"model": model_node("gan", 16, 4), "batch_size": batch_size, "device": "cpu", **timing}
    found = train(settings)
    assert found["steps"] == 3
    assert found["seconds"] > 0
