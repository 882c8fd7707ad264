"""Base class of sources that torchvision downloads and parses; their images are packed like any others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from lit_gans.common.cache_folder import cache_folder
from lit_gans.common.errors import RefusedInput, install_command
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import Source

Labels = Sequence[int] | np.ndarray | Tensor


class Items(Source):
    """Source of the images in a torchvision dataset of pairs (image, label).

    Args:
        dataset: torchvision dataset.
        name: name of the dataset, for error messages.
        labels: class of each image; None without classes.
        border: number of black pixels added on each side.
    """

    def __init__(self, dataset: Any, name: str, labels: Labels | None, border: int = 0) -> None:
        self.dataset, self._name, self.border = dataset, name, border
        self.labels = None if labels is None else np.asarray(labels).reshape(-1)

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, index: int) -> str:
        return f"{self._name} number {index}"

    def picture(self, index: int, notes: list[str]) -> Image.Image:
        try:
            image = self.dataset[index][0]
        except (OSError, SyntaxError, ValueError) as error:
            raise RefusedInput(f"{self.name(index)} cannot be read: {error}") from error
        if not self.border:
            return image
        side = 2 * self.border
        framed = Image.new(image.mode, (image.width + side, image.height + side))
        framed.paste(image, (self.border, self.border))
        return framed

    def label(self, index: int) -> int:
        return 0 if self.labels is None else int(self.labels[index])


class TorchvisionData(PackedData):
    """A torchvision dataset. Files missing in `root` are downloaded, if torchvision supports it. Files are assumed not
    to change: after replacing them, delete the packed file.

    Args:
        root: folder of the dataset's files, in torchvision's layout; null uses `torchvision` in the cache folder.
        split: split of the dataset; null uses the training split.
        image_size, channels, cache: see `PackedData`.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: an unknown split, or files that neither exist nor can be downloaded; the message lists the files.
    """

    wanted: str  # files that users must place in `root` if they cannot be downloaded
    splits: tuple[str, ...] = ("train", "test")
    border = 0
    extra: str | None = None  # extra with the package that the dataset requires

    def __init__(
        self,
        *,
        root: str | None = None,
        split: str | None = None,
        image_size: int = 32,
        channels: int = 3,
        cache: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(image_size=image_size, channels=channels, cache=cache, **kwargs)
        self.root = Path(root).expanduser() if root else cache_folder(cache) / "torchvision"
        self.split = split or self.splits[0]
        if self.split not in self.splits:
            raise RefusedInput(f"split={self.split} must be one of {', '.join(self.splits)}.")

    def open(self, datasets: ModuleType) -> Source:
        """Returns the images, from `torchvision.datasets` or otherwise."""
        raise NotImplementedError

    def items(self, dataset: Any, labels: Labels | None) -> Items:
        """Returns a torchvision dataset as a source."""
        return Items(dataset, f"{type(self).__name__} ({self.split})", labels, self.border)

    def source(self) -> Source:
        from torchvision import datasets

        if self.root.is_file():
            raise RefusedInput(f"data.root={self.root} is a file: give the folder that holds {self.wanted}.")
        try:
            return self.open(datasets)
        # zip, pickle, lmdb, urllib and gdown raise different errors
        except Exception as error:
            raise RefusedInput(self._sentence(error)) from error

    def _sentence(self, error: Exception) -> str:
        name = type(self).__name__
        # torchvision converts a missing gdown to a different error
        missing = next((found for found in (error, error.__context__) if isinstance(found, ImportError)), None)
        if missing is not None:
            advice = (
                install_command(self.extra)
                if self.extra
                else f"install it with: python -m pip install {missing.name or 'NAME'}"
            )
            return f"{name} needs a package that is missing ({missing}); {advice}"
        reason = str(error).splitlines()[0] if str(error) else "no reason given"
        return (
            f"data.root={self.root}: {name} cannot be read there and cannot be downloaded"
            f" ({type(error).__name__}: {reason}): put {self.wanted} into {self.root}."
        )

    def identity(self) -> dict[str, Any]:
        return {"root": str(self.root.resolve()), "split": self.split}
