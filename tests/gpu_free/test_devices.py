"""No iteration mixes devices, copies pageable memory or reads from a GPU: shown with fake tensors, for every GAN."""

import pytest
import torch

from lit_gans.metrics.extractors.efficientnet import EfficientNetLite
from tests.gans import GANS
from tests.gpu_free.fake import CUDA, fake_gpu, move, run_iteration

SETTINGS = {
    "penalties": ("dcgan", {"r1_gamma": 1.0, "r2_gamma": 1.0, "clip_gradients": 1.0}),
    "diffaugment": ("dcgan", {"diffaugment": ("color", "translation", "cutout")}),
    "classes": ("sngan", {"num_classes": 10}),
    "lightweight": ("dcgan", {"block": "inverted_residual"}),
}
CASES = {name: (name, {}) for name in GANS} | SETTINGS


@pytest.mark.parametrize("case", CASES)
def test_every_tensor_of_an_iteration_is_on_the_gpu(tiny_gan, monkeypatch, case):
    name, settings = CASES[case]
    module = tiny_gan(name, **settings)
    with fake_gpu(monkeypatch):
        if name == "cyclegan":
            for pool in module._pools:  # the first exchange of a training moves their counts
                pool.count = torch.zeros(1, dtype=torch.long, device=CUDA)
        elif name == "projected_gan":
            module.discriminator.features._network = move(EfficientNetLite().eval().requires_grad_(False))
        terms = run_iteration(module)
    assert set(terms) == {*module.network_names}
    assert {tensor.device for pair in terms.values() for tensor in pair if tensor is not None} == {CUDA}


PLANTED = {
    "item": (lambda loss: loss * loss.item(), "makes the host wait"),
    "list": (lambda loss: loss * torch.tensor([2.0], device=loss.device).sum(), "makes the host wait"),
    "copy": (lambda loss: loss * torch.ones(()).to(loss.device), "makes the host wait"),
    "CPU tensor": (lambda loss: (loss * torch.ones(2)).sum(), "two different devices|Expected all tensors"),
    "nonzero": (lambda loss: loss * loss.reshape(1).nonzero().sum(), "makes the host wait"),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_mistake_in_a_loss_is_seen(tiny_gan, monkeypatch, mistake):
    plant, message = PLANTED[mistake]
    module = tiny_gan("dcgan")
    loss = module.generator_loss
    monkeypatch.setattr(module, "generator_loss", lambda fake, batch: plant(loss(fake, batch)))
    with pytest.raises(RuntimeError, match=message), fake_gpu(monkeypatch):
        run_iteration(module)
