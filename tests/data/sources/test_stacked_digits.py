import gzip
import hashlib
from urllib.error import URLError

import numpy as np
import pytest
import torch
from torchvision.datasets import MNIST
from torchvision.datasets import utils as downloads

from lit_gans.common.errors import RefusedInput
from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.stacked_digits import StackedDigits
from lit_gans.metrics.extractors.digits import DigitsExtractor


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def fail(*_):
        raise URLError("there is no network")

    monkeypatch.setattr(downloads, "_urlretrieve", fail)


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
    step = data.dataset[torch.arange(1000)]
    right = data.modes_of(step["image"].float() / 255) == step["label"]
    assert right.float().mean() >= 0.95


def test_each_of_the_three_places_counts(data):
    digits, labels = Digits().dataset.images[::500].float() / 255, Digits().dataset.labels[::500]
    images = torch.cat([digits[[1, 2, 3]], digits[[3, 2, 1]], digits[[0, 0, 9]]], 1)
    a, b, c = labels[[1, 2, 3]], labels[[3, 2, 1]], labels[[0, 0, 9]]
    assert data.modes_of(images).tolist() == (100 * a + 10 * b + c).tolist()


def test_modes_without_a_classifier_are_refused():
    with pytest.raises(RefusedInput, match="call set_classifier"):
        StackedDigits(num_images=3).modes_of(torch.zeros(1, 3, 32, 32))


def test_triples_depend_on_the_seed_alone_and_are_spread_over_the_classes(data):
    again, other = StackedDigits(num_images=1000), StackedDigits(num_images=1000, seed=1)
    assert torch.equal(again.dataset.labels, data.dataset.labels)
    assert not torch.equal(other.dataset.labels, data.dataset.labels)
    assert len(data.dataset.labels.unique()) == pytest.approx(1000 * (1 - np.exp(-1)), abs=60)
    assert (data.num_classes, data.num_modes) == (1000, 1000)


def test_every_image_comes_once_in_order(data):
    batches = list(data.real_batches(300))
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]
    assert torch.equal(torch.cat(batches), data.dataset[torch.arange(1000)]["image"])
    assert torch.equal(data.real_labels(), data.dataset[torch.arange(1000)]["label"])


def idx(array):
    """The bytes of an array in the format of MNIST's files."""
    header = np.array([0x0800 + array.ndim, *array.shape], dtype=">i4")
    return header.tobytes() + array.tobytes()


@pytest.fixture
def mnist(tmp_path, monkeypatch):
    """Writes a small MNIST under a folder, unpacked or as the four archives; returns its training images and labels."""

    def write(packed):
        raw = tmp_path / "MNIST" / "raw"
        raw.mkdir(parents=True)
        drawn, resources = np.random.default_rng(0), []
        arrays = {
            f"{part}-{name}": array
            for part in ("train", "t10k")
            for name, array in (
                ("images-idx3-ubyte", drawn.integers(0, 256, (40, 28, 28), dtype=np.uint8)),
                ("labels-idx1-ubyte", drawn.integers(0, 10, 40, dtype=np.uint8)),
            )
        }
        for name, array in arrays.items():
            content = gzip.compress(idx(array)) if packed else idx(array)
            (raw / (f"{name}.gz" if packed else name)).write_bytes(content)
            resources.append((f"{name}.gz", hashlib.md5(content).hexdigest()))
        monkeypatch.setattr(MNIST, "resources", resources)
        return arrays["train-images-idx3-ubyte"], arrays["train-labels-idx1-ubyte"]

    return write


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder_holds_the_full_mnist(mnist, tmp_path, packed):
    digits, labels = mnist(packed)
    data = StackedDigits(root=str(tmp_path), num_images=30).dataset
    padded = np.pad(digits, ((0, 0), (2, 2), (2, 2)))
    seen = data[torch.arange(30)]
    for image, label in zip(seen["image"].numpy(), seen["label"].tolist(), strict=True):
        rows = [(padded == channel).all((1, 2)).argmax() for channel in image]
        assert all((padded[row] == channel).all() for row, channel in zip(rows, image, strict=True))
        assert label == labels[rows].astype(int) @ [100, 10, 1]
    assert StackedDigits(root=str(tmp_path), num_images=3, image_size=16).dataset.digits.shape == (40, 16, 16)


def test_a_missing_mnist_without_a_network_is_refused_with_the_folder_to_fill(tmp_path):
    data = StackedDigits(root=str(tmp_path))
    with pytest.raises(RefusedInput, match="MNIST cannot be read there and cannot be downloaded") as refused:
        data.setup("fit")
    sentence = str(refused.value)
    assert f"data.root={tmp_path}" in sentence
    assert "put MNIST/raw/train-images-idx3-ubyte.gz" in sentence
    assert f"into {tmp_path}" in sentence
    assert "\n" not in sentence


def test_another_number_of_channels_is_refused():
    with pytest.raises(RefusedInput, match="channels=1 must be 3"):
        StackedDigits(channels=1)
