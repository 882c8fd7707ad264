from copy import deepcopy

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.base import ModuleExtractor, in_chunks, on_white
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.metrics.extractors.efficientnet import EfficientNetLite
from lit_gans.metrics.extractors.weights import fold_batch_norms


class Means(nn.Module):
    """A user's module: the mean of each channel."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))

    def forward(self, images):
        assert not self.training
        return self.scale * images.mean((2, 3))


def test_any_module_gives_features_of_images_in_0_1():
    images = torch.randint(0, 256, (40, 1, 5, 5), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    extractor = ModuleExtractor(Means(), name="means").train()
    features, logits = extractor(images)
    torch.testing.assert_close(features, images.float().mean((1, 2, 3))[:, None].expand(-1, 3) / 255)
    assert logits.shape == (40, 0)
    evaluator = Evaluator(extractor, {"fid": FrechetInceptionDistance()}, 40, seed=0)
    evaluator.add_real(images)
    assert evaluator.measure(images // 2)["metric/fid_means"] > 0.1


def test_the_sha256_is_that_of_names_and_values():
    one, other = Means(), Means()
    same = ModuleExtractor(one).sha256 == ModuleExtractor(other).sha256
    other.scale.data[1] = 2
    assert (same, ModuleExtractor(one).sha256 == ModuleExtractor(other).sha256) == (True, False)
    assert DigitsExtractor().sha256 == DigitsExtractor().sha256


def test_what_is_no_row_of_features_for_each_image_is_refused():
    with pytest.raises(RefusedInput, match=r"returned \(2, 3, 4, 4\)"):
        ModuleExtractor(nn.Identity())(torch.zeros(2, 3, 4, 4, dtype=torch.uint8))


def test_transparent_images_lie_on_white_as_pillow_lays_them():
    pixels = torch.randint(0, 256, (5, 4, 6, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pixels[0, 3], pixels[1, 3] = 255, 0
    laid = on_white(pixels)
    assert torch.equal(laid[0], pixels[0, :3])
    assert (laid[1] == 255).all()
    white = Image.new("RGBA", (7, 6), (255, 255, 255, 255))
    for image, ours in zip(pixels, laid, strict=True):
        theirs = Image.alpha_composite(white, Image.fromarray(image.permute(1, 2, 0).numpy())).convert("RGB")
        assert (torch.from_numpy(np.array(theirs)).permute(2, 0, 1).int() - ours.int()).abs().max() <= 1


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
