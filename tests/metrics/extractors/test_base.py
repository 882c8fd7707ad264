import importlib
import sys
from copy import deepcopy

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torchvision.transforms import v2

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


def test_a_wrapped_module_that_is_trained_elsewhere_runs_in_evaluation_mode_and_stays_in_training():
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12))
    fid = FrechetInceptionDistance(network, normalize=True, input_img_size=(3, 2, 2))
    images = torch.rand(9, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    fid.update(images, real=True)
    fid.update(images, real=False)
    assert fid.compute() < 1e-9
    assert network[1].running_mean.abs().max() == 0
    assert network.training
    assert network[1].training
    assert all(parameter.requires_grad for parameter in network.parameters())


@pytest.mark.parametrize("normalize", [False, True])
def test_a_module_receives_images_as_they_are_and_runs_without_autocast(normalize):
    seen = []

    class Gray(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 5)

        def forward(self, images):
            seen.append(images)
            return self.layer(images.float().flatten(1))

    fid = FrechetInceptionDistance(Gray(), normalize=normalize, input_img_size=(1, 2, 2))
    images = torch.tensor([0, 51, 102, 255], dtype=torch.uint8).reshape(1, 1, 2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        features = fid.extracted(images / 255 if normalize else images).features
    assert features.dtype == torch.float32
    torch.testing.assert_close(seen[-1], images / 255 if normalize else images)


def test_the_sha256_is_that_of_names_and_values():
    one, other = Means(), Means()
    same = ModuleExtractor(one).sha256 == ModuleExtractor(other).sha256
    other.scale.data[1] = 2
    assert (same, ModuleExtractor(one).sha256 == ModuleExtractor(other).sha256) == (True, False)
    assert DigitsExtractor().sha256 == DigitsExtractor().sha256


class Scaled(nn.Module):
    """Without weights: a plain number and a transformation determine its features."""

    def __init__(self, scale=1.0, mean=0.5, power=None):
        super().__init__()
        self.scale, self.normalize, self.power = scale, v2.Normalize([mean], [0.5]), power or (lambda pixels: pixels)

    def forward(self, images):
        return self.power(self.scale * self.normalize(images)).mean((2, 3))


class Other(Scaled):
    """Another class with the same attributes."""


def test_modules_without_weights_have_one_sha256_only_if_all_that_determines_them_is_equal():
    def sha256(module, **arguments):
        return ModuleExtractor(module, **arguments).sha256

    def squared(number):
        return lambda pixels: pixels**number

    different = [Scaled(), Scaled(2.0), Scaled(mean=0.4), Scaled(power=squared(2)), Scaled(power=squared(3)), Other()]
    different += [nn.Flatten(), nn.Sequential(nn.Flatten()), nn.Sequential(nn.Flatten(), nn.ReLU())]
    different += [nn.Sequential(nn.AvgPool2d(2), nn.Flatten()), nn.Sequential(nn.MaxPool2d(2), nn.Flatten())]
    shas = [sha256(module) for module in different]
    assert len({*shas}) == len(shas)
    assert [sha256(deepcopy(module)) for module in different] == shas
    assert sha256(Scaled(), num_classes=10) != sha256(Scaled())
    buffered = nn.Flatten()
    buffered.register_buffer("hidden", torch.ones(2), persistent=False)
    before = sha256(buffered)
    buffered.hidden[0] = 2
    assert sha256(buffered) != before, "a buffer that the state dict lacks"
    assert sha256(torch.compile(Scaled(), backend="eager")) == sha256(Scaled())


@pytest.mark.parametrize(
    ("old", "new"),
    [("images.mean", "images.amax"), ("SCALE = 1", "SCALE = 2"), ("images * 1", "images * 2")],
)
def test_the_code_of_a_users_file_is_part_of_the_sha256(tmp_path, monkeypatch, old, new):
    text = (
        "import torch\n\nSCALE = 1\n\ndef scaled(images):\n    return images * 1\n\n"
        "class Mine(torch.nn.Module):\n    def forward(self, images):\n"
        "        return SCALE * scaled(images.mean((2, 3)))\n"
    )

    def sha256(folder, text):
        folder.mkdir()
        (folder / "users_module.py").write_text(text)
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.delitem(sys.modules, "users_module", raising=False)
        return ModuleExtractor(importlib.import_module("users_module").Mine()).sha256

    assert old in text
    first = sha256(tmp_path / "one", text)
    assert sha256(tmp_path / "elsewhere", text) == first, "wherever the file lies"
    assert sha256(tmp_path / "other", text.replace(old, new)) != first


def test_a_derived_extractor_has_not_the_sha256_of_its_file():
    class Smaller(DigitsExtractor):
        """The same weights and the same name, with another preprocessing."""

        def forward(self, images):
            return super().forward(images // 2)

    assert Smaller().sha256 == Smaller().sha256 != DigitsExtractor().sha256


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
