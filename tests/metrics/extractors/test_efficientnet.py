import numpy as np
import pytest
import torch

from lit_gans.metrics.extractors.efficientnet import EfficientnetLite0, EfficientnetLite2, SameConv2d


@pytest.fixture(scope="module", params=[EfficientnetLite0, EfficientnetLite2])
def extractor(request):
    return request.param()


def test_padding_is_tensorflow_s_on_even_and_odd_sizes():
    layer = SameConv2d(1, 1, 3, 2, bias=False)
    layer.weight.data.fill_(1)
    # an even size is padded at its end alone: the first window is pixels 0, 1, 2
    row = torch.arange(1.0, 7.0).expand(1, 1, 6, 6)
    assert layer(row)[0, 0, 0].tolist() == [3 * (1 + 2 + 3), 3 * (3 + 4 + 5), 3 * (5 + 6)]
    row = torch.arange(1.0, 6.0).expand(1, 1, 5, 5)
    assert layer(row)[0, 0, 1].tolist() == [3 * (1 + 2), 3 * (2 + 3 + 4), 3 * (4 + 5)]


def photograph(name):
    from sklearn.datasets import load_sample_image

    return torch.from_numpy(np.array(load_sample_image(name))).permute(2, 0, 1)[None, :, 100:400, 150:500]


def test_knows_what_is_in_a_photograph(extractor):
    """That the network, its weights and its scaling of pixels fit: 698 is the palace of ImageNet, 985 the daisy."""
    with torch.no_grad():
        features, logits = extractor(photograph("china.jpg"))
    assert (features.shape, logits.shape) == ((1, 1280), (1, 1000))
    assert logits.argmax().item() == 698
    assert logits.softmax(1).max() > 0.25
    if extractor.name == "efficientnet_lite0":
        assert extractor(photograph("flower.jpg"))[1].argmax().item() == 985


def test_gray_is_repeated_and_the_network_stays_as_it_is(extractor):
    assert not extractor.train().training
    assert not any(parameter.requires_grad for parameter in extractor.parameters())
    gray = torch.randint(0, 256, (2, 1, 40, 40), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(extractor(gray)[0], extractor(gray.repeat(1, 3, 1, 1))[0])


def test_pixels_are_scaled_as_in_its_training(extractor):
    """By TensorFlow's `efficientnet/lite`: mean 127, deviation 128."""
    images = torch.randint(
        0, 256, (2, 3, *2 * [extractor.image_size]), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    torch.testing.assert_close(extractor(images), extractor.network((images.float() - 127) / 128))
