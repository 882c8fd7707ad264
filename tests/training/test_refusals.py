from contextlib import nullcontext
from unittest.mock import create_autospec

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.callbacks import GradientAccumulationScheduler
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
    with pytest.raises(RefusedInput, match="the data has channels=3, but the model has channels=1"):
        fit(tiny_gan(), random_images(channels=3), max_steps=1)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"gradient_clip_val": 1}, r"Trainer\(gradient_clip_val=1\) .* use model.clip_gradients=1, in Python"),
        ({"gradient_clip_algorithm": "norm"}, r"gradient_clip_algorithm='norm'\) .* use model.clip_gradients=NORM"),
        ({"accumulate_grad_batches": 3}, r"accumulate_grad_batches=3\) .* use model.accumulate_gradients=3, in Python"),
        (
            {"callbacks": [GradientAccumulationScheduler({0: 2})]},
            "GradientAccumulationScheduler has .* use model.accumulate_gradients=NUMBER",
        ),
        ({"val_check_interval": 10}, r"val_check_interval=10\) .* no validation_step: .* metrics.every_n_steps=NUMBER"),
        ({"check_val_every_n_epoch": 2}, r"check_val_every_n_epoch=2\) has no effect"),
    ],
)
@pytest.mark.parametrize("strategy", ["auto", "network_ddp"])
def test_arguments_of_the_trainer_that_have_no_effect_name_those_of_the_model(
    tiny_gan, random_images, fit, arguments, sentence, strategy
):
    with pytest.raises(RefusedInput, match=sentence):
        fit(tiny_gan(), random_images(), max_steps=1, strategy=strategy, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"gradient_clip_val": 0},
        {"val_check_interval": 1.0},
        {"check_val_every_n_epoch": None},
        {"num_sanity_val_steps": 0, "limit_val_batches": 0},
        {"limit_train_batches": 0.5},
        {"detect_anomaly": True},
        {"use_distributed_sampler": False},
        {"max_epochs": -1},
        {"reload_dataloaders_every_n_epochs": 1},
        {"sync_batchnorm": True},
        {"inference_mode": False},
    ],
    ids=str,
)
def test_other_arguments_of_the_trainer_train(tiny_gan, random_images, fit, arguments):
    assert fit(tiny_gan(), random_images(), max_steps=1, **arguments).global_step == 1


def trainer_of(device="cpu", precision="32-true", world_size=1, strategy=None):
    """Returns what `refuse_trainer` sees of a trainer, also on devices and in worlds that are not here."""
    trainer = create_autospec(Trainer, instance=True)
    trainer.datamodule, trainer.precision, trainer.callbacks = None, precision, []
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
        ("cpu", "16-mixed", "precision=fp16 .* needs a CUDA device, but the device is cpu"),
        ("cpu", "bf16-true", r"loses small updates of optimizers and averages: use precision=bf16 \(bf16-mixed\)"),
        ("cuda", "transformer-engine", "loses small updates"),
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
    with pytest.raises(RefusedInput, match=f"{launcher} started 4 processes, but each .* strategy=ddp with"):
        fit(tiny_gan(), random_images(), max_steps=1)
    refuse_trainer(tiny_gan(), trainer_of(world_size=4))


def test_lightnings_ddp_is_an_error_unless_it_searches_for_unused_parameters(tiny_gan):
    with pytest.raises(RefusedInput, match=r"trainer.devices=2 uses Lightning's own DDP.* use strategy=ddp"):
        refuse_trainer(tiny_gan(), trainer_of(world_size=2, strategy=DDPStrategy()))
    for strategy in (DDPStrategy(find_unused_parameters=True), NetworkDDP()):
        refuse_trainer(tiny_gan(), trainer_of(world_size=2, strategy=strategy))
