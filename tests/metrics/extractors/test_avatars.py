import pytest
import torch

from lit_gans.data.faces import ATTRIBUTES
from lit_gans.metrics.extractors.avatars import (
    WEIGHTS,
    AvatarsExtractor,
    attributes_of_features,
    by_attribute,
    trained_reader,
)
from lit_gans.metrics.extractors.base import Network
from tests.metrics.extractors.train_avatars import TEST, accuracies, before, faces

# of 4,000 faces, see `docs/guides/faces.md`
ACCURACIES = {
    "hat": 1.0,
    "hair": 0.98,
    "hair_color": 0.94,
    "hat_color": 1.0,
    "glasses": 0.99,
    "beard": 0.93,
    "eyes": 0.87,
    "eyebrows": 0.49,
    "mouth": 0.97,
    "nose": 0.38,
    "skin": 1.0,
    "clothing": 0.97,
    "clothing_color": 0.97,
}


@pytest.fixture(scope="module")
def tested():
    """Faces that the network has not learned from, (n, 4, h, w), and the options of their attributes."""
    return faces(400, TEST)


@pytest.mark.runs
def test_reads_the_attributes_of_faces_as_the_guide_says(tested):
    images, numbers = tested
    found = accuracies(trained_reader(), before(images, torch.ones(1, 3)), numbers)
    # of 4,000 faces; 400 of them have a standard error of 0.02 at most
    for name, expected in ACCURACIES.items():
        assert found[name] >= expected - 0.05, name
    assert WEIGHTS.stat().st_size < 600_000


@pytest.mark.runs
@pytest.mark.parametrize("image_size", [96, 128])
def test_larger_faces_are_read_as_well(image_size):
    images, numbers = faces(100, TEST, image_size)
    features, _ = Network(AvatarsExtractor())(images)
    read = attributes_of_features(features)
    for name in ("hat", "glasses", "beard", "skin"):
        assert (read[name] == numbers[:, [*ATTRIBUTES].index(name)]).float().mean() > 0.85, name


def test_is_the_network_on_color_images_in_0_1_also_under_autocast(tested):
    images = (before(tested[0][:20], torch.ones(1, 3)) * 255).round().to(torch.uint8)
    features, logits = trained_reader()(images.float() / 255)
    extractor = AvatarsExtractor()
    for dtype in (torch.float32, torch.bfloat16):
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            found, none = extractor(images)
        torch.testing.assert_close(found, features)
        assert none.shape == (20, 0)
    torch.testing.assert_close(AvatarsExtractor("hat")(images)[1], by_attribute(logits)["hat"])
    assert extractor.sha256 == AvatarsExtractor("hat").sha256, "their features are equal"
    assert not extractor.reader.training
    assert not any(parameter.requires_grad for parameter in extractor.parameters())


def test_gray_images_are_those_of_three_equal_channels(tested):
    gray = tested[0][:5, :1]
    torch.testing.assert_close(AvatarsExtractor()(gray), AvatarsExtractor()(gray.expand(-1, 3, -1, -1)))


def test_every_attribute_has_its_logits_in_their_order():
    logits = torch.arange(float(sum(len(attribute.options) for attribute in ATTRIBUTES.values())))[None]
    split = by_attribute(logits)
    assert [*split] == [*ATTRIBUTES]
    assert {name: len(attribute.options) for name, attribute in ATTRIBUTES.items()} == {
        name: each.shape[1] for name, each in split.items()
    }
    assert torch.cat([*split.values()], 1).equal(logits)
