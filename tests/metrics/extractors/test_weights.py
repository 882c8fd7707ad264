"""Folded batch norms and images a few at a time change nothing but the time."""

from copy import deepcopy

import torch
from torch import nn

from lit_gans.metrics.extractors.base import in_chunks
from lit_gans.metrics.extractors.efficientnet import EfficientNetLite
from lit_gans.metrics.extractors.weights import fold_batch_norms


def test_a_network_with_folded_batch_norms_returns_what_it_returned():
    torch.manual_seed(0)
    network = EfficientNetLite(0.25, 0.25)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):  # so that it is not the identity
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
    images, expected = torch.randn(3, 3, 32, 32), deepcopy(network).eval().double()
    fold_batch_norms(network)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    with torch.no_grad():
        for found, wanted in zip(network(images), expected(images.double()), strict=True):
            assert wanted.std() > 0.01
            torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_images_in_chunks_keep_their_order():
    def network(images):
        assert len(images) <= 16
        return images.flatten(1).float(), images.flatten(1)[:, :1] + 1.0

    for num in (0, 1, 16, 35):
        images = torch.arange(4 * num).reshape(num, 1, 2, 2).to(torch.uint8)
        features, logits = in_chunks(network, images)
        assert torch.equal(features, images.flatten(1).float())
        assert torch.equal(logits, images.flatten(1)[:, :1] + 1.0)
