"""What an evaluator refuses or warns of: images, features and numbers of images that make no sense."""

import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.data.images import to_uint8
from tests.metrics.cells import Pixels, evaluator_of, images, measure


def test_guards(evaluator):
    with pytest.raises(RefusedInput, match="too few for 10 splits"):
        measure(evaluator, images(10, 0))
    with pytest.raises(FloatingPointError, match="diverged"):
        to_uint8(torch.tensor([[[[float("nan")]]]]))
    assert to_uint8(torch.tensor([[[[0.0, 0.4999 / 255, 0.5001 / 255, 1.0]]]])).flatten().tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_one_value_that_is_not_finite_ends_the_measurement(value):
    broken = torch.rand(3, 1, 2, 2)
    broken[1, 0, 1, 0] = value
    with pytest.raises(FloatingPointError, match="not finite"):
        to_uint8(broken)


def test_images_in_another_range_shape_or_type_do_not_reach_the_extractor(evaluator):
    with pytest.raises(RefusedInput, match=r"images have values in \[-1, 1\], expected \[0, 1\]"):
        to_uint8(torch.tensor([[[[-1.0, 1.0]]]]))
    for wrong in (torch.zeros(40, 1, 2, 2), torch.zeros(40, 4, dtype=torch.uint8), images(40, 0).repeat(1, 2, 1, 1)):
        with pytest.raises(RefusedInput, match=r"expected uint8 \(n, c, h, w\) with 1, 3 or 4 channels"):
            measure(evaluator, wrong)


def test_features_that_are_not_finite_end_before_any_linear_algebra():
    class Broken(Pixels):
        def forward(self, images):
            return super().forward(images)[0] / 0, super().forward(images)[1]

    with pytest.raises(FloatingPointError, match="features that are not finite"):
        evaluator_of(Broken()).add_real(images(40, 0))


def test_not_more_images_than_features_warns_once_with_both_numbers(caplog):
    class Wide(Pixels):
        num_features = 40

        def forward(self, images):
            pixels, logits = super().forward(images)
            return pixels.repeat(1, 10), logits

    evaluator = evaluator_of(Wide())
    evaluator.add_real(images(200, 0))
    measure(evaluator, images(41, 1))
    assert not caplog.messages
    for _ in range(2):
        measure(evaluator, images(40, 1))
    (message,) = caplog.messages
    assert message.startswith("40 images are no more than the 40 features")


def test_announced_images_must_come(evaluator):
    with pytest.raises(RefusedInput, match="Expected 100 generated images, received 39"):
        evaluator.measure(images(39, 1))
