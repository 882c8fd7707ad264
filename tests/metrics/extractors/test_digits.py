import torch
from torch.nn import functional

from lit_gans.data.sources.digits import Digits
from lit_gans.metrics.extractors.digits import WEIGHTS, DigitsExtractor, Pool
from tests.metrics.extractors.train_digits import accuracy, held_out


def test_names_97_percent_of_the_held_out_digits_rightly_from_less_than_a_megabyte():
    data = Digits().dataset
    test = held_out(len(data))
    assert test.sum() == 1000
    extractor = DigitsExtractor()
    assert accuracy(extractor.classifier, data.images[test], data.labels[test]) >= 0.97
    assert WEIGHTS.stat().st_size < 1e6


def test_is_the_classifier_on_gray_images_in_0_1_also_under_autocast():
    extractor, images = DigitsExtractor(), Digits().dataset.images[:200]
    expected = extractor.classifier(images.float() / 255)
    torch.testing.assert_close(extractor(images), expected)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features, logits = extractor(images)
    assert features.dtype == torch.float32
    torch.testing.assert_close((features, logits), expected)
    shades = torch.stack([images[:, 0], images[:, 0] // 2, images[:, 0] // 3], dim=1)
    torch.testing.assert_close(extractor(shades), extractor.classifier(shades.float().mean(1, keepdim=True) / 255))


def test_pooling_is_that_of_torch():
    images = torch.randn(3, 2, 8, 6, generator=torch.Generator().manual_seed(0))
    images[0, 0, 1, 4], images[1, 1, 3, 3] = torch.nan, -torch.inf
    torch.testing.assert_close(Pool()(images), functional.max_pool2d(images, 2), rtol=0, atol=0, equal_nan=True)
