"""The clock of a cell ends the training after the steps that it planned, or before one that would take too long."""

from unittest.mock import Mock

import pytest
import torch
from lightning.pytorch import Trainer

from benchmarks.study import training
from benchmarks.study.contract import Unavailable
from benchmarks.study.training import Clock, model_node, train
from lit_gans.config.signatures import construct
from lit_gans.training.adversarial import AdversarialModule


@pytest.mark.parametrize("batch_size", [8, 16])  # a larger batch than 8 has two first steps of 8 images
def test_a_fast_training_times_all_its_steps(batch_size):
    timing = {"warmup": 1, "steps": 3, "seconds": 1000.0, "step_limit": 1000.0}
    settings = {"model": model_node("gan", 16, 4), "batch_size": batch_size, "device": "cpu", **timing}
    found = train(settings)
    assert found["steps"] == 3
    assert found["seconds"] > 0


@pytest.mark.parametrize(
    ("batch_size", "steps", "refusal"),
    [
        (512, (10.0, 0.2, 13.0), None),  # the first step, which is cold, would have predicted 640 s
        (512, (10.0, 0.3), "a step would take about 19 s here, longer than step_limit=15."),
        (512, (0.1, 0.2, 16.0), "a step takes 16 s here, longer than step_limit=15."),  # but would take 13 s
        (8, (20.0, 2.0), None),
        (4, (1.0, 16.0), "a step takes 16 s here, longer than step_limit=15."),
    ],
)
def test_a_warm_step_of_few_images_predicts_a_large_one_which_is_timed_too(batch_size, steps, refusal, monkeypatch):
    seconds = [0.0]
    monkeypatch.setattr(training, "now", lambda device: seconds[0])
    module = Mock(AdversarialModule, parameters=list, compile_networks=False, device=torch.device("cpu"))
    trainer = Mock(Trainer, global_step=0, should_stop=False, strategy=Mock(broadcast=lambda value: value))
    given = {"device": "cpu", "warmup": 1, "steps": 3, "step_limit": 15.0, "batch_size": batch_size}
    clock = Clock(given, module)
    clock.on_train_start(trainer, module)
    for index, step in enumerate(steps):
        assert not trainer.should_stop, index
        trainer.global_step, seconds[0] = index + 1, seconds[0] + step
        clock.on_train_batch_end(trainer, module)
    assert (clock.refusal, trainer.should_stop) == (refusal, refusal is not None)


def test_a_training_with_too_long_steps_is_unavailable():
    settings = {"device": "cpu", "warmup": 1, "steps": 2, "step_limit": 1e-6, "batch_size": 2}
    with pytest.raises(Unavailable, match=r"a step takes \d+ s here, longer than step_limit=1e-06"):
        train(settings | {"model": model_node("gan", image_size=16, width=4)})


def test_networks_of_a_cpu_are_those_of_the_study_or_small_ones():
    def parameters(gan, device):
        with torch.device("meta"):
            networks = construct(model_node(gan, image_size=64, device=device), "model").configure_networks()
        return [sum(p.numel() for p in network.parameters()) for network in networks.values()]

    assert parameters("sngan", "cpu") == parameters("sngan", "cuda") == [3_821_891, 4_854_977]
    assert sum(parameters("r3gan", "cpu")) < 10e6 < sum(parameters("r3gan", "cuda"))
