"""MNIST and datasets in its format."""

from __future__ import annotations

from types import ModuleType
from typing import Any, Literal

from lit_gans.data.packed.format import Source
from lit_gans.data.torchvision_data import TorchvisionData


class _Gray28(TorchvisionData):
    """28x28 grayscale images, padded with black to 32x32."""

    num_classes = 10
    border = 2

    def __init__(self, *, channels: int = 1, **kwargs: Any) -> None:
        super().__init__(channels=channels, **kwargs)

    def _opened(self, dataset: type) -> Source:
        found: Any = dataset(str(self.root), train=self.split == "train", download=True)
        return self.items(found, found.targets)


class MNIST(_Gray28):
    """60,000 digits (LeCun et al. 1998), padded from 28x28 to 32x32.

    Args:
        channels: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    metrics = "digits"
    wanted = "MNIST/raw/train-images-idx3-ubyte.gz, MNIST/raw/train-labels-idx1-ubyte.gz and the two t10k files"

    def open(self, datasets: ModuleType) -> Source:
        return self._opened(datasets.MNIST)


class FashionMNIST(_Gray28):
    """60,000 images of clothing (Xiao et al. 2017), padded from 28x28 to 32x32.

    Args:
        channels: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    wanted = "FashionMNIST/raw/train-images-idx3-ubyte.gz, .../train-labels-idx1-ubyte.gz and the two t10k files"

    def open(self, datasets: ModuleType) -> Source:
        return self._opened(datasets.FashionMNIST)


class KMNIST(_Gray28):
    """60,000 cursive Japanese characters (Clanuwat et al. 2018), padded from 28x28 to 32x32.

    Args:
        channels: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    wanted = "KMNIST/raw/train-images-idx3-ubyte.gz, KMNIST/raw/train-labels-idx1-ubyte.gz and the two t10k files"

    def open(self, datasets: ModuleType) -> Source:
        return self._opened(datasets.KMNIST)


class EMNIST(_Gray28):
    """Handwritten letters and digits (Cohen et al. 2017), upright, padded from 28x28 to 32x32.

    Args:
        subset: subset of the dataset, such as letters or digits.
        channels: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    wanted = "EMNIST/raw/gzip.zip"

    def __init__(
        self,
        *,
        subset: Literal["balanced", "byclass", "bymerge", "digits", "letters", "mnist"] = "balanced",
        channels: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(channels=channels, **kwargs)
        self.subset = subset
        sizes = {"balanced": 47, "byclass": 62, "bymerge": 47, "digits": 10, "letters": 26, "mnist": 10}
        self.num_classes = sizes[subset]

    def open(self, datasets: ModuleType) -> Source:
        found = datasets.EMNIST(str(self.root), split=self.subset, train=self.split == "train", download=True)
        found.data = found.data.transpose(1, 2)  # the files are transposed, unlike MNIST's
        return self.items(found, found.targets - int(self.subset == "letters"))  # only the labels of letters start at 1

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"subset": self.subset}
