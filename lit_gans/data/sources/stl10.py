"""STL-10."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from lit_gans.data.packed.format import Source
from lit_gans.data.torchvision_data import TorchvisionData


class STL10(TorchvisionData):
    """96x96 images of 10 classes (Coates et al. 2011): 100,000 without labels and 5,000 with, 105,000 by default.

    Args:
        image_size: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    wanted = "stl10_binary.tar.gz"
    splits = ("train+unlabeled", "train", "test", "unlabeled")

    def __init__(self, *, image_size: int = 48, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        self.num_classes = 0 if "unlabeled" in self.split else 10

    def open(self, datasets: ModuleType) -> Source:
        found = datasets.STL10(str(self.root), split=self.split, download=True)
        return self.items(found, found.labels if self.num_classes else None)
