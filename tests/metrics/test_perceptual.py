import pytest
import torch
from torch.nn import functional
from torchvision.models import squeezenet1_1

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.extractors.efficientnet import EfficientnetLite0
from lit_gans.metrics.perceptual import perceptual_network

TAPS = (2, 5, 8, 10, 11, 12, 13)  # behind which LPIPS compares SqueezeNet's features


@pytest.fixture
def images():
    return torch.rand(2, 3, 3, 64, 64) * 2 - 1


@pytest.fixture(scope="module")
def squeezenet(tmp_path_factory):
    """A file as torchvision's, with random weights, and its network."""
    torch.manual_seed(0)
    network = squeezenet1_1(weights=None).eval()
    path = tmp_path_factory.mktemp("weights") / "squeezenet.pth"
    torch.save(network.state_dict(), path)
    return path, network


def test_features_of_efficientnet_are_compared_at_five_resolutions(images):
    network = perceptual_network("efficientnet_lite0", None, 3)
    lite = EfficientnetLite0().network
    found = [lite.maps((each * 255 / 2 + 255 / 2 - 127) / 128) for each in images]
    assert [tuple(each.shape[1:]) for each in found[0]] == [
        (16, 32, 32),
        (24, 16, 16),
        (40, 8, 8),
        (112, 4, 4),
        (320, 2, 2),
    ]
    expected = torch.zeros(3)
    for one, other in zip(*found, strict=True):
        cosine = functional.cosine_similarity(one, other, dim=1)
        expected += (2 - 2 * cosine).mean((1, 2)) / 5  # the squared distance of vectors of length 1
    torch.testing.assert_close(network(*images), expected, rtol=1e-4, atol=1e-5)
    assert (network(images[0], images[0]) == 0).all()


def test_lpips_is_the_weighted_distance_of_the_features_of_the_file(images, squeezenet):
    path, network = squeezenet
    distance = perceptual_network("lpips_squeeze", str(path), 3)
    layers = [distance.get_submodule(f"distance.network.lin{index}.model.1") for index in range(len(TAPS))]
    shift, scale = torch.tensor([-0.030, -0.088, -0.188]), torch.tensor([0.458, 0.448, 0.450])
    one, other = ((each - shift[:, None, None]) / scale[:, None, None] for each in images)
    expected, start = torch.zeros(3), 0
    for layer, end in zip(layers, TAPS, strict=True):
        one, other = network.features[start:end](one), network.features[start:end](other)
        square = (functional.normalize(one) - functional.normalize(other)).square()
        expected, start = expected + layer(square).mean((1, 2, 3)), end
    torch.testing.assert_close(distance(*images), expected, rtol=1e-4, atol=1e-6)
    assert (expected > 0).all()
    assert all((layer.weight >= 0).all() for layer in layers), "trained weights, which are not negative"


def test_networks_are_frozen_and_stay_in_evaluation_mode(images):
    network = perceptual_network("efficientnet_lite0", None, 3).train()
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())
    leaf = images[0].clone().requires_grad_()
    network(leaf, images[1]).sum().backward()
    assert leaf.grad.norm() > 0


def test_half_precision_computes_in_float32(images):
    network = perceptual_network("efficientnet_lite0", None, 3)
    expected = network(*images)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(network(*images), expected)


def test_gray_images_are_repeated_to_color(images):
    network = perceptual_network("efficientnet_lite0", None, 1)
    gray = images[:, :, :1]
    assert torch.equal(network(*gray), network(*gray.expand(2, 3, 3, 64, 64)))


def test_what_is_missing_is_named(tmp_path, squeezenet):
    assert perceptual_network("none", None, 7) is None
    with pytest.raises(RefusedInput, match=r"perceptual_file=nothing\.pth has no effect with perceptual=none"):
        perceptual_network("none", "nothing.pth", 3)
    with pytest.raises(
        RefusedInput, match="perceptual=lpips_vgg supports images with 1 or 3 channels, but the images have 4"
    ):
        perceptual_network("lpips_vgg", None, 4)
    with pytest.raises(
        RefusedInput, match=r"torchvision's squeezenet1_1-b8a52dc0\.pth from .* set perceptual_file=PATH"
    ):
        perceptual_network("lpips_squeeze", None, 3)
    torch.save({"features.0.weight": torch.zeros(1)}, tmp_path / "other.pth")
    with pytest.raises(
        RefusedInput, match=r"does not contain features\.0\.bias: expected the tensors of torchvision's squeeze"
    ):
        perceptual_network("lpips_squeeze", str(tmp_path / "other.pth"), 3)
    with pytest.raises(RefusedInput, match=r"gone\.pth cannot be read as weights: .*No such file"):
        perceptual_network("lpips_squeeze", str(tmp_path / "gone.pth"), 3)
    state = torch.load(squeezenet[0], weights_only=True)
    torch.save(state | {"features.0.weight": torch.zeros(1)}, tmp_path / "shape.pth")
    with pytest.raises(
        RefusedInput, match=r"shape\.pth .*torchvision's squeeze\S+: size mismatch for \S+0\.weight"
    ) as raised:
        perceptual_network("lpips_squeeze", str(tmp_path / "shape.pth"), 3)
    assert "\n" not in str(raised.value)
    with pytest.raises(
        RefusedInput, match=r"squeezenet\.pth .*EfficientNet-Lite0: missing .* \"_conv_stem\.weight\"\.$"
    ):
        perceptual_network("efficientnet_lite0", str(squeezenet[0]), 3)
