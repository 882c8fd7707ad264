"""LSUN."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from PIL import Image

from lit_gans.data.images import open_picture
from lit_gans.data.packed.format import PerProcess, Source
from lit_gans.data.torchvision_data import TorchvisionData


def _database(path: Path) -> Any:
    import lmdb

    return lmdb.open(str(path), readonly=True, lock=False, readahead=False, meminit=False, create=False)


class _Scenes(Source):
    """Images of an LSUN database, in the order of their keys.

    Args:
        path: path of the database folder.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._database = path, PerProcess(partial(_database, path))
        with self._database().begin() as reading:
            self.keys = list(reading.cursor().iternext(keys=True, values=False))

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, index: int) -> str:
        return f"{self.path} key {self.keys[index].decode(errors='replace')}"

    def picture(self, index: int, notes: list[str]) -> Image.Image:
        with self._database().begin() as reading:
            return open_picture(bytes(reading.get(self.keys[index])), self.name(index), notes)


class LSUN(TorchvisionData):
    """Scenes of one category (Yu et al. 2015); requires lmdb. torchvision does not download them.

    Args:
        category: category of the scenes, such as bedroom, church_outdoor or tower.
        image_size: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    extra = "lsun"
    splits = ("train", "val")

    def __init__(self, *, category: str = "bedroom", image_size: int = 64, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        self.category = category
        self.wanted = f"the unpacked folder {category}_{self.split}_lmdb"

    def open(self, datasets: ModuleType) -> Source:
        # not read by torchvision, which caches its list of keys in the current folder under an ambiguous name
        return _Scenes(self.root / f"{self.category}_{self.split}_lmdb")

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"category": self.category}
