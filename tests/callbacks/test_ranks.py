"""Two processes measure what one does, whatever their shares of the images, and one of them writes."""

import math
import tempfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from lit_gans.callbacks import (
    EMA,
    GenerativeMetrics,
    ModeMetrics,
    PairedMetrics,
    PathLength,
    PowerEMA,
    ReconstructionMetrics,
    RunConfig,
    Samples,
)
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.callbacks.power_ema import exponent
from lit_gans.data.sources.points import Ring
from lit_gans.metrics.extractors.digits import DigitsExtractor
from tests.strategies.ranks import run
from tests.tiny import fit, random_images, tiny_gan

pytestmark = pytest.mark.ranks


def measured(name, data, callback, world_size, strategy="network_ddp", **sizes):
    """Returns the values at iteration 0, where ranks have the weights that one process has."""
    torch.set_num_threads(1)
    ranks = {"devices": world_size, "strategy": strategy} if world_size > 1 else {}
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [callback, Samples(num=4), RunConfig({}, {"config.yaml": "a: 1"})]
        place = {"default_root_dir": folder, "logger": CSVMetrics(folder), "log_every_n_steps": 1}
        module = tiny_gan(name, seed=3, **sizes)
        trainer = fit(module, data, 1, callbacks=callbacks, **place, **ranks)
        written = sorted(path.name for path in Path(folder).iterdir())
    expected = ["config.yaml", "metrics.csv", "protocol.json", "samples"]
    assert written == (expected if trainer.is_global_zero else []), "rank 0 alone writes"
    return callback.first


def modes(num_samples, world_size=2):
    """Measures the modes of points; they are wide, so that the first samples are in some of them."""
    data, callback = Ring(num_points=64, batch_size=4, std=0.65), ModeMetrics(num_samples=num_samples, batch_size=20)
    return measured("gan", data, callback, world_size, image_size=1, channels=2)


def pairs(num_samples, world_size=2):
    """Measures translations."""
    callback = PairedMetrics(num_samples=num_samples, batch_size=8)
    return measured("pix2pix", random_images(batch_size=4), callback, world_size)


def reconstructions(num_samples, world_size=2):
    """Measures reconstructions."""
    callback = ReconstructionMetrics(num_samples=num_samples, batch_size=8, perceptual="none")
    return measured("autoencoder_kl", random_images(batch_size=4), callback, world_size)


def path_lengths(num_samples, world_size=2):
    """Measures distances of images whose latents are close."""
    callback = PathLength(num_samples=num_samples, batch_size=8, epsilon=0.1)
    return measured("dcgan", random_images(batch_size=4), callback, world_size)


def scores(num_samples, world_size=2, strategy="network_ddp"):
    """Measures generated against real images."""
    callback = GenerativeMetrics(DigitsExtractor(), num_samples=num_samples, batch_size=20, cache=False)
    return measured("dcgan", random_images(batch_size=4), callback, world_size, strategy)


@pytest.mark.parametrize(
    ("measure", "num_samples"),
    [
        *[("modes", 101), ("modes", 1), ("pairs", 30), ("pairs", 8)],  # where there are 1 and 8, rank 1 has none
        *[("reconstructions", 9), ("reconstructions", 1), ("path_lengths", 21), ("path_lengths", 3)],
    ],
)
def test_two_ranks_measure_what_one_does(measure, num_samples, tmp_path):
    alone = globals()[measure](num_samples, world_size=1)
    found = run(f"tests.callbacks.test_ranks.{measure}", tmp_path, num_samples=num_samples)
    may_be_zero = ("metric/modes_covered", "metric/ssim")
    assert all(math.isfinite(value) and (value > 0 or name in may_be_zero) for name, value in alone.items())
    assert found == [pytest.approx(alone, rel=1e-6, abs=1e-7)] * 2


@pytest.mark.parametrize("strategy", ["network_ddp", "network_fsdp", "network_deepspeed_stage_3"])
def test_networks_in_shards_are_measured_as_unsharded_ones(strategy, tmp_path):
    alone = scores(61, world_size=1)
    assert alone["metric/fid_digits"] > 1
    # the spread of the Inception Score of noise is a difference of rounding errors
    expected = pytest.approx(alone, rel=1e-6, abs=1e-6)
    assert run("tests.callbacks.test_ranks.scores", tmp_path, num_samples=61, strategy=strategy) == [expected] * 2


class Trajectory(PowerEMA):
    """Keeps the full weights of the generator of each iteration."""

    def on_train_batch_end(self, trainer, pl_module, *arguments):
        super().on_train_batch_end(trainer, pl_module, *arguments)
        full = trainer.strategy.lightning_module_state_dict()
        self.weights = [*getattr(self, "weights", []), {name: value.clone() for name, value in full.items()}]


def averages(strategy):
    """Returns the last snapshot, which is empty on other ranks than 0, the state, and the weights of each iteration."""
    torch.set_num_threads(1)
    average = Trajectory(widths=(0.1, 0.2), num=1)
    with tempfile.TemporaryDirectory() as folder:
        ranks = {"devices": 2, "strategy": strategy, "default_root_dir": folder}
        fit(tiny_gan(seed=3), random_images(batch_size=4), 3, callbacks=[average], **ranks)
        snapshot = {
            name: value for path in Path(folder).rglob("*.safetensors") for name, value in load_file(path).items()
        }
    return snapshot, average.state_dict()["averages"], average.weights


@pytest.mark.parametrize("strategy", ["network_ddp", "network_fsdp", "network_deepspeed_stage_3"])
def test_power_function_averages_of_networks_in_shards(strategy, tmp_path):
    (snapshot, state, weights), (no_snapshot, other_state, _) = run(
        "tests.callbacks.test_ranks.averages", tmp_path, strategy=strategy
    )
    torch.testing.assert_close(other_state, state, rtol=0, atol=0)
    assert not no_snapshot
    for index, width in enumerate((0.1, 0.2)):
        shares = ((torch.arange(4) / 3) ** (exponent(width) + 1)).diff().tolist()
        for name, value in state[index].items():
            torch.testing.assert_close(snapshot[f"{index}.{name}"], value, rtol=0, atol=0)
            trained = (step[f"generator.{name}"] for step in weights)
            expected = sum(share * each for share, each in zip(shares, trained, strict=True))
            torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-7)


def resumed_without_ema(path, strategy):
    """Returns whether the averaged generator of a checkpoint is left when the training goes on without EMA."""
    torch.set_num_threads(1)
    module = tiny_gan(seed=3)
    with tempfile.TemporaryDirectory() as folder, pytest.warns(UserWarning, match="no EMA callback to update it"):
        fit(module, random_images(batch_size=4), 2, path, devices=1, strategy=strategy, default_root_dir=folder)
    return module.averaged_generator is not None


@pytest.mark.parametrize("strategy", ["network_ddp", "network_fsdp", "network_deepspeed_stage_3"])
def test_an_average_that_nothing_updates_is_dropped_whenever_the_strategy_loads_it(strategy, tmp_path):
    path = tmp_path / "some.ckpt"
    fit(tiny_gan(seed=3), random_images(batch_size=8), 1, callbacks=[EMA()]).save_checkpoint(path)
    assert run("tests.callbacks.test_ranks.resumed_without_ema", tmp_path, 1, path=path, strategy=strategy) == [False]
