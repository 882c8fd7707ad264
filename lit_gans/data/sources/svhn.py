"""Street View House Numbers."""

from __future__ import annotations

from types import ModuleType

from lit_gans.data.packed.format import Source
from lit_gans.data.torchvision_data import TorchvisionData


class SVHN(TorchvisionData):
    """73,257 house numbers at 32x32 (Netzer et al. 2011); requires scipy.

    Args:
        **kwargs: see `TorchvisionData`.
    """

    num_classes = 10
    extra = "svhn"
    wanted = "train_32x32.mat (test_32x32.mat, extra_32x32.mat)"
    splits = ("train", "test", "extra")

    def open(self, datasets: ModuleType) -> Source:
        found = datasets.SVHN(str(self.root), split=self.split, download=True)
        return self.items(found, found.labels)
