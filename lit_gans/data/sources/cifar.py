"""CIFAR-10 and CIFAR-100."""

from __future__ import annotations

from types import ModuleType

from lit_gans.data.packed.format import Source
from lit_gans.data.torchvision_data import TorchvisionData


class CIFAR10(TorchvisionData):
    """50,000 images of 10 classes at 32x32 (Krizhevsky 2009).

    Args:
        **kwargs: see `TorchvisionData`.
    """

    num_classes = 10
    wanted = "cifar-10-python.tar.gz"

    def open(self, datasets: ModuleType) -> Source:
        found = datasets.CIFAR10(str(self.root), train=self.split == "train", download=True)
        return self.items(found, found.targets)


class CIFAR100(TorchvisionData):
    """50,000 images of 100 classes at 32x32 (Krizhevsky 2009).

    Args:
        **kwargs: see `TorchvisionData`.
    """

    num_classes = 100
    wanted = "cifar-100-python.tar.gz"

    def open(self, datasets: ModuleType) -> Source:
        found = datasets.CIFAR100(str(self.root), train=self.split == "train", download=True)
        return self.items(found, found.targets)
