"""Tests of a device: their bodies run on the CPU in the usual tiers, and on a GPU with `pytest -m cuda`."""

import pytest
import torch


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
def train(fit):
    """Trains on a device, see `fit`."""

    def run(module, data, device, max_steps, **arguments):
        return fit(module, data, max_steps, accelerator=device.type, devices=1, **arguments)

    return run
