"""The clock of a cell ends the training after the steps that it planned."""

import pytest
import torch

from lit_gans.benchmark.study.contract import Unavailable
from lit_gans.benchmark.study.training import model_node, train
from lit_gans.config.signatures import construct


@pytest.mark.parametrize("batch_size", [8, 16])  # a larger batch than 8 has a first step of 8 images
def test_a_fast_training_times_all_its_steps(batch_size):
    timing = {"warmup": 1, "steps": 3, "seconds": 1000.0, "step_limit": 1000.0}
    settings = {"model": model_node("gan", 16, 4), "batch_size": batch_size, "device": "cpu", **timing}
    found = train(settings)
    assert found["steps"] == 3
    assert found["seconds"] > 0


def test_a_batch_smaller_than_the_first_step_s_is_refused_by_its_own_time():
    settings = {"device": "cpu", "warmup": 1, "steps": 2, "step_limit": 1e-6, "batch_size": 2}
    with pytest.raises(Unavailable, match=r"would take about \d+ s here, longer than step_limit=1e-06"):
        train(settings | {"model": model_node("gan", image_size=16, width=4)})


def test_networks_of_a_cpu_are_those_of_the_study_or_small_ones():
    def parameters(gan, device):
        with torch.device("meta"):
            networks = construct(model_node(gan, image_size=64, device=device), "model").configure_networks()
        return [sum(p.numel() for p in network.parameters()) for network in networks.values()]

    assert parameters("sngan", "cpu") == parameters("sngan", "cuda") == [3_821_891, 4_854_977]
    assert sum(parameters("r3gan", "cpu")) < 10e6 < sum(parameters("r3gan", "cuda"))
