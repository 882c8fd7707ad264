import gzip

import numpy as np
import torch

from lit_gans.data.base import resized
from lit_gans.data.sources import digits
from lit_gans.data.sources.digits import Digits


def test_five_thousand_real_digits_padded_and_true_to_the_file():
    data = Digits().dataset
    assert data.images.shape == (5000, 1, 32, 32)
    assert data.images.dtype == torch.uint8
    assert data.labels.bincount().tolist() == [500] * 10
    with gzip.open(digits._file(), "rt") as file:
        row = np.array(file.readlines()[1234].split(","), dtype=int)
    assert np.array_equal(data.images[1234, 0, 2:30, 2:30].numpy(), row[:-1].reshape(28, 28))
    assert data.labels[1234] == row[-1]
    assert data.images[:, :, :2].sum() == data.images[:, :, :, 30:].sum() == 0


def test_rectangles_show_whole_digits_on_black():
    square, wide = Digits(image_size=16).dataset.images, Digits(image_size=(16, 40)).dataset.images
    assert wide.shape == (5000, 1, 16, 40)
    assert torch.equal(wide[..., 12:28], square)
    assert wide[..., :12].sum() == wide[..., 28:].sum() == 0
    assert torch.equal(Digits(image_size=(40, 16)).dataset.images[:, :, 12:28], square)


def test_resizing_averages_and_rounds():
    assert (resized(torch.full((1, 1, 32, 32), 77, dtype=torch.uint8), 16) == 77).all()
    halves = torch.tensor([[10, 11], [11, 11]], dtype=torch.uint8)[None, None]
    assert resized(halves, 1).item() == 11  # 10.75 rounds, truncating gives 10
    lines = torch.tensor([255, 0, 0, 0] * 16, dtype=torch.uint8).expand(1, 1, 64, 64)
    inside = resized(lines, 16)[:, :, :, 2:-2].float()
    assert (inside - 255 / 4).abs().max() < 10, "without antialiasing they vanish"
