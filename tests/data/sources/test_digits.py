import gzip

import numpy as np
import pytest
import torch

from lit_gans.common.errors import RefusedInput
from lit_gans.data.base import resized
from lit_gans.data.sources import digits
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.stacked_digits import StackedDigits
from lit_gans.metrics.extractors.digits import DigitsExtractor


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


@pytest.fixture(scope="module")
def data():
    stacked = StackedDigits(num_images=1000)
    stacked.set_classifier(DigitsExtractor())
    stacked.dataset  # noqa: B018 - loads once
    return stacked


def test_the_channels_of_an_image_are_the_digits_of_its_triple(data):
    digits = Digits().dataset
    step = data.dataset[torch.arange(20)]
    assert step["image"].shape == (20, 3, 32, 32)
    assert step["image"].dtype == torch.uint8
    for image, label in zip(step["image"], step["label"].tolist(), strict=True):
        rows = [(digits.images[:, 0] == channel).flatten(1).all(1).nonzero()[0] for channel in image]
        a, b, c = (digits.labels[row].item() for row in rows)
        assert label == 100 * a + 10 * b + c


def test_the_classifier_sees_the_classes_of_real_images(data):
    step = data.dataset[torch.arange(200)]
    right = data.modes_of(step["image"].float() / 255) == step["label"]
    assert right.float().mean() >= 0.95


def test_modes_without_a_classifier_are_refused():
    with pytest.raises(RefusedInput, match="call set_classifier"):
        StackedDigits(num_images=3).modes_of(torch.zeros(1, 3, 32, 32))


def test_triples_depend_on_the_seed_alone_and_are_spread_over_the_classes(data):
    again, other = StackedDigits(num_images=1000), StackedDigits(num_images=1000, seed=1)
    assert torch.equal(again.dataset.labels, data.dataset.labels)
    assert not torch.equal(other.dataset.labels, data.dataset.labels)
    assert len(data.dataset.labels.unique()) == pytest.approx(1000 * (1 - np.exp(-1)), abs=60)
    assert (data.num_classes, data.num_modes) == (1000, 1000)


def write_mnist(root, name, images, labels):
    """Writes images and labels in the format of MNIST's files; those of the second part are in the reverse order."""
    raw = root / name / "raw"
    raw.mkdir(parents=True)
    for part, order in (("train", 1), ("t10k", -1)):
        for kind, array in {"images-idx3": images[::order], "labels-idx1": labels[::order]}.items():
            header = np.array([0x0800 + array.ndim, *array.shape], dtype=">i4")
            (raw / f"{part}-{kind}-ubyte").write_bytes(header.tobytes() + array.tobytes())


def test_a_folder_holds_the_full_mnist(tmp_path):
    drawn = np.random.default_rng(0)
    digits, labels = drawn.integers(0, 256, (40, 28, 28), dtype=np.uint8), drawn.integers(0, 10, 40, dtype=np.uint8)
    write_mnist(tmp_path, "MNIST", digits, labels)
    seen = StackedDigits(root=str(tmp_path), num_images=30).dataset[torch.arange(30)]
    padded = np.pad(digits, ((0, 0), (2, 2), (2, 2)))
    for image, label in zip(seen["image"].numpy(), seen["label"].tolist(), strict=True):
        rows = [(padded == channel).all((1, 2)).argmax() for channel in image]
        assert all((padded[row] == channel).all() for row, channel in zip(rows, image, strict=True))
        assert label == labels[rows].astype(int) @ [100, 10, 1]
    assert StackedDigits(root=str(tmp_path), num_images=3, image_size=16).dataset.digits.shape == (40, 16, 16)


def test_no_stacked_digits_are_refused():
    with pytest.raises(RefusedInput, match="num_images=-1 must be at least 1"):
        StackedDigits(num_images=-1)
