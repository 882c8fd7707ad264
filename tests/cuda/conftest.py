"""Tests of a device: their bodies run on the CPU in the usual tiers, and on a GPU with `pytest -m cuda`."""

import pytest
import torch
from lightning.pytorch import Trainer


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.cuda)])
def device(request):
    """The device to test; a test runs once for each."""
    return _device(request.param)


def _device(name):
    if name == "cuda" and not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device here")
    return torch.device(name)


@pytest.fixture(params=[pytest.param("cpu", marks=pytest.mark.slow), pytest.param("cuda", marks=pytest.mark.cuda)])
def heavy_device(request):
    """The device of a test that takes longer: the CPU in the slow tier."""
    return _device(request.param)


@pytest.fixture
def train(tmp_path):
    """Trains a module for some iterations on a device, without logger, bar and checkpoints; returns the trainer."""

    def run(module, data, device, max_steps, **arguments):
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        accelerator = {"accelerator": device.type, "devices": 1}
        options = {"max_steps": max_steps, "max_epochs": -1, "default_root_dir": tmp_path, **accelerator, **quiet}
        resumed = {name: arguments.pop(name) for name in ("ckpt_path", "weights_only") if name in arguments}
        trainer = Trainer(**{**options, **arguments})
        data = {"datamodule": data} if hasattr(data, "prepare_data") else {"train_dataloaders": data}
        trainer.fit(module, **data, **resumed)
        return trainer

    return run
