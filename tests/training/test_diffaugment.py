"""DiffAugment against loops over single images; `test_augmentation.py` has it in the training."""

import numpy as np
import pytest
import torch

from lit_gans.training.diffaugment import augmented, color, cutout, small_cutout, translation

DRAWN = torch.Generator().manual_seed(0)
IMAGES = torch.rand(40, 3, 16, 24, generator=DRAWN) * 2 - 1
NUMBERS = torch.rand(40, 3, generator=DRAWN)


def test_color_one_image_at_a_time():
    for image, (brightness, saturation, contrast), ours in zip(
        IMAGES.double().numpy(), NUMBERS.tolist(), color(IMAGES, NUMBERS), strict=True
    ):
        image = image + brightness - 0.5
        image = image * 2 * saturation + image.mean(0) * (1 - 2 * saturation)
        image = image * (contrast + 0.5) + image.mean() * (0.5 - contrast)
        assert np.abs(image - ours.numpy()).max() < 1e-5


def test_translation_is_by_whole_pixels_and_reaches_an_eighth_each_way():
    shifts = set()
    numbers = NUMBERS[:, :2]
    for image, (down, right), ours in zip(IMAGES, numbers.tolist(), translation(IMAGES, numbers), strict=True):
        down, right = int(down * 5) - 2, int(right * 7) - 3
        padded = np.pad(image.numpy(), ((0, 0), (9, 9), (9, 9)))
        assert np.array_equal(padded[:, 9 - down : 25 - down, 9 - right : 33 - right], ours.numpy())
        shifts.add(down)
    assert shifts == {-2, -1, 0, 1, 2}


def test_cutout_hides_a_square_of_half_the_size_with_its_center_in_the_image():
    hidden = cutout(torch.ones(2000, 1, 16, 16), torch.rand(2000, 2, generator=DRAWN))[:, 0] == 0
    rows, columns = hidden.any(2).sum(1), hidden.any(1).sum(1)
    assert torch.equal(hidden.sum((1, 2)), rows * columns), "a rectangle"
    assert (rows.min(), rows.max()) == (4, 8)
    assert (columns.min(), columns.max()) == (4, 8)
    share = hidden.float().mean(0)
    assert torch.allclose(share, share.flip(0), atol=0.05)


def test_small_cutout_hides_a_fifth_of_the_size():
    hidden = small_cutout(torch.ones(2000, 1, 20, 32), torch.rand(2000, 2, generator=DRAWN))[:, 0] == 0
    rows, columns = hidden.any(2).sum(1), hidden.any(1).sum(1)
    assert torch.equal(hidden.sum((1, 2)), rows * columns), "a rectangle"
    assert (rows.min(), rows.max()) == (2, 4)
    assert (columns.min(), columns.max()) == (3, 6)


@pytest.mark.parametrize("name", ["translation", "cutout", "small_cutout"])
def test_images_in_half_precision_are_augmented_at_the_same_positions(name):
    images, numbers = torch.ones(3, 1, 64, 64), torch.tensor([[0.9985, 0.9985], [0.5, 0.9999], [0.123, 0.456]])
    half = augmented(images.bfloat16(), (name,), numbers)
    assert half.dtype == torch.bfloat16
    assert torch.equal(half.float(), augmented(images, (name,), numbers))


def test_colors_of_images_in_half_precision_stay_in_half_precision():
    half = augmented(IMAGES.bfloat16(), ("color",), NUMBERS)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), color(IMAGES, NUMBERS), rtol=0, atol=0.05)


@pytest.mark.parametrize("name", ["color", "translation", "cutout", "small_cutout"])
def test_gradients_pass_through(name):
    images, numbers = IMAGES[:2, :, :5, :5].double().requires_grad_(), NUMBERS[:2].double()
    numbers = numbers[:, : 3 if name == "color" else 2]
    assert torch.autograd.gradcheck(lambda x: augmented(x, (name,), numbers), images)
