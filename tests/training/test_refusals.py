from contextlib import nullcontext
from unittest.mock import create_autospec

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.strategies import DDPStrategy

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.training.refusals import refuse_trainer


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clip_gradients": 0.0}, "clip_gradients=0.0 must be greater than 0"),
        ({"r1_gamma": float("inf")}, "r1_gamma=inf must be at least 0 and at most 1,000,000"),
        ({"r1_gamma": float("nan")}, "r1_gamma=nan"),
        ({"label_smoothing": 1.0}, "label_smoothing=1.0"),
        ({"generator_batch_multiple": 0}, "generator_batch_multiple=0 must be at least 1"),
        ({"r1_every": -1}, "r1_every=-1 must be at least 1"),
    ],
)
def test_settings(tiny_gan, settings, sentence):
    with pytest.raises(RefusedInput, match=sentence):
        tiny_gan(**settings)


def test_data_and_model_must_have_the_same_channels(tiny_gan, random_images, fit):
    with pytest.raises(RefusedInput, match="the data has channels=3 and the model channels=1"):
        fit(tiny_gan(), random_images(channels=3), max_steps=1)


def trainer_of(device="cpu", precision="32-true", world_size=1, strategy=None):
    """Returns what `refuse_trainer` sees of a trainer, also on devices and in worlds that are not here."""
    trainer = create_autospec(Trainer, instance=True)
    trainer.datamodule, trainer.precision = None, precision
    trainer.world_size = trainer.num_devices = world_size
    if strategy is None:
        trainer.strategy.root_device = torch.device(device)
    else:
        strategy.accelerator, strategy.parallel_devices = CPUAccelerator(), [torch.device("cpu")] * world_size
        trainer.strategy = strategy
    return trainer


@pytest.mark.parametrize(
    ("device", "precision", "sentence"),
    [
        ("cpu", "16-mixed", "precision=fp16 .* needs a CUDA device, and on cpu"),
        ("cpu", "bf16-true", r"lose small updates of optimizers and averages: use precision=bf16 \(bf16-mixed\)"),
        ("cuda", "transformer-engine", "lose small updates"),
        ("cpu", "bf16-mixed", None),
        ("cuda", "16-mixed", None),
    ],
)
def test_half_precision_is_neither_replaced_in_silence_nor_that_of_weights(tiny_gan, device, precision, sentence):
    with pytest.raises(RefusedInput, match=sentence) if sentence else nullcontext():
        refuse_trainer(tiny_gan(), trainer_of(device, precision))


@pytest.mark.parametrize(
    ("launcher", "environment"),
    [
        ("torchrun", {"TORCHELASTIC_RUN_ID": "1", "WORLD_SIZE": "4", "RANK": "0", "LOCAL_RANK": "0"}),
        (
            "SLURM",
            {"SLURM_NTASKS": "4", "SLURM_NTASKS_PER_NODE": "4"}
            | {f"SLURM_{name}": "0" for name in ("PROCID", "LOCALID", "NODEID")},
        ),
    ],
)
def test_processes_that_would_each_train_by_themselves_are_refused(
    tiny_gan, random_images, fit, monkeypatch, launcher, environment
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RefusedInput, match=f"{launcher} started 4 processes, and each .* strategy=ddp with"):
        fit(tiny_gan(), random_images(), max_steps=1)
    refuse_trainer(tiny_gan(), trainer_of(world_size=4))


def test_lightning_s_own_ddp_is_refused_but_where_it_looks_for_unused_parameters(tiny_gan):
    with pytest.raises(RefusedInput, match=r"trainer.devices=2 with Lightning's own DDP.* use strategy=ddp"):
        refuse_trainer(tiny_gan(), trainer_of(world_size=2, strategy=DDPStrategy()))
    for strategy in (DDPStrategy(find_unused_parameters=True), NetworkDDP()):
        refuse_trainer(tiny_gan(), trainer_of(world_size=2, strategy=strategy))
