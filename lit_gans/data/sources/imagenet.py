"""ImageNet, from a folder that the user has downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from lit_gans.common.errors import RefusedInput
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import Source
from lit_gans.data.sources.folder import Folder


class Imagenet(PackedData):
    """ImageNet (Russakovsky et al. 2015) as a folder of class folders, in `train/` or `val/`.

    Args:
        root: path of the folder.
        split: name of the folder inside `root`.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the folder does not exist, or contains no class folders with images.
    """

    def __init__(self, *, root: str, split: Literal["train", "val"] = "train", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        inside = Path(root).expanduser() / split
        if not inside.is_dir():
            raise RefusedInput(
                f"data.root={root}: there is no folder {split} in it: unpack ILSVRC2012_img_{split}.tar so that"
                f" {inside} holds one folder for each class."
            )
        self._folder = Folder(str(inside), on_error=self.on_error)
        if not self._folder.classes:
            raise RefusedInput(f"data.root={root}: {inside} itself holds images, not one folder for each class.")
        self.classes, self.num_classes = self._folder.classes, self._folder.num_classes

    def source(self) -> Source:
        return self._folder.source()

    def identity(self) -> dict[str, Any]:
        return self._folder.identity()
