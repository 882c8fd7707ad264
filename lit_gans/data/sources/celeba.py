"""CelebA."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

from lit_gans.data.packed.format import Source
from lit_gans.data.sources.folder import Files
from lit_gans.data.torchvision_data import TorchvisionData


class CelebA(TorchvisionData):
    """162,770 aligned faces of 178x218 (Liu et al. 2015), cropped to the central 178x178; usual sizes are 64 and 128.

    Args:
        image_size: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    extra = "celeba"
    wanted = "celeba/img_align_celeba.zip and celeba/list_eval_partition.txt with the other lists of celeba/*.txt"
    splits = ("train", "valid", "test", "all")

    def __init__(self, *, image_size: int = 64, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)

    def open(self, datasets: ModuleType) -> Source:
        found = datasets.CelebA(str(self.root), split=self.split, target_type="identity", download=True)
        paths = [Path(found.root, found.base_folder, "img_align_celeba", name) for name in found.filename]
        return Files(paths, [0] * len(paths))
