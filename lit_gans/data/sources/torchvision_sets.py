"""The usual data sets, downloaded and parsed by torchvision, then packed as any picture is."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from lit_gans.common.cache_folder import cache_folder
from lit_gans.common.errors import RefusedInput, install_command
from lit_gans.data.images import open_picture
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import PerProcess, Source
from lit_gans.data.sources.folder import Files, Folder


class _Items(Source):
    """A torchvision data set of pairs (picture, label) as a source of pictures.

    Args:
        dataset: the data set.
        name: of the data set, for refusals.
        labelled: whether its labels are classes.
        border: black pixels added on each side.
    """

    def __init__(self, dataset: Any, name: str, labelled: bool, border: int) -> None:
        self.dataset, self._name, self.labelled, self.border = dataset, name, labelled, border
        labels = next((getattr(dataset, key) for key in ("targets", "labels") if hasattr(dataset, key)), None)
        self.labels = np.asarray(labels).reshape(-1) if labelled and labels is not None else None

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, index: int) -> str:
        return f"{self._name} number {index}"

    def picture(self, index: int, notes: list[str]) -> Image.Image:
        try:
            picture = self.dataset[index][0]
        except (OSError, SyntaxError, ValueError) as error:
            raise RefusedInput(f"{self.name(index)} cannot be read: {error}") from error
        if not self.border:
            return picture
        side = 2 * self.border
        framed = Image.new(picture.mode, (picture.width + side, picture.height + side))
        framed.paste(picture, (self.border, self.border))
        return framed

    def label(self, index: int) -> int:
        return int(self.labels[index]) if self.labels is not None else 0


class TorchvisionData(PackedData):
    """A data set of torchvision. What is not under `root` is downloaded, where torchvision can. Its files are taken
    never to change: who replaces them deletes the packed file.

    Args:
        root: folder of the data set's files, as torchvision lays them out; null is `torchvision` in the cache folder.
        split: the part that is served; null is the one that trains.
        image_size, channels, cache: see `PackedData`.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: an unknown part, or files neither there nor to be fetched, with what to put where.
    """

    wanted: str  # what to put under `root` by hand
    splits: tuple[str, ...] = ("train", "test")
    border = 0
    labelled = True
    extra = "test"  # that brings a package which it needs

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

    def open(self, datasets: Any) -> Any:
        """Returns the data set, from `torchvision.datasets`, or a source."""
        raise NotImplementedError

    def source(self) -> Source:
        from torchvision import datasets

        name = type(self).__name__
        try:
            dataset = self.open(datasets)
        except ImportError as error:
            raise RefusedInput(f"{name} needs a package that is missing; {install_command(self.extra)}") from error
        # zip, pickle, lmdb, urllib and gdown each have errors of their own
        except Exception as error:
            raise RefusedInput(
                f"data.root={self.root}: {name} cannot be read there and cannot be fetched"
                f" ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}):"
                f" put {self.wanted} into {self.root}."
            ) from error
        if isinstance(dataset, Source):
            return dataset
        return _Items(dataset, f"{name} ({self.split})", self.labelled, self.border)

    def identity(self) -> dict[str, Any]:
        return {"root": str(self.root.resolve()), "split": self.split}


class _Digits28(TorchvisionData):
    """28x28 gray pictures, framed in black to 32x32."""

    num_classes = 10
    border = 2

    def __init__(self, *, channels: int = 1, **kwargs: Any) -> None:
        super().__init__(channels=channels, **kwargs)

    def open(self, datasets: Any) -> Any:
        cls = getattr(datasets, type(self).__name__)
        return cls(str(self.root), train=self.split == "train", download=True)


class MNIST(_Digits28):
    """60,000 digits (LeCun et al. 1998), framed from 28x28 to 32x32.

    Args:
        channels: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    metrics = "digits"
    wanted = "MNIST/raw/train-images-idx3-ubyte.gz, MNIST/raw/train-labels-idx1-ubyte.gz and the two t10k files"


class FashionMNIST(_Digits28):
    """60,000 pieces of clothing (Xiao et al. 2017), framed from 28x28 to 32x32.

    Args:
        channels: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    wanted = "FashionMNIST/raw/train-images-idx3-ubyte.gz, .../train-labels-idx1-ubyte.gz and the two t10k files"


class KMNIST(_Digits28):
    """60,000 cursive Japanese characters (Clanuwat et al. 2018), framed from 28x28 to 32x32.

    Args:
        channels: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    wanted = "KMNIST/raw/train-images-idx3-ubyte.gz, KMNIST/raw/train-labels-idx1-ubyte.gz and the two t10k files"


class EMNIST(_Digits28):
    """Handwritten letters and digits (Cohen et al. 2017), upright, framed from 28x28 to 32x32.

    Args:
        subset: which of its divisions.
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

    def open(self, datasets: Any) -> Any:
        found = datasets.EMNIST(str(self.root), split=self.subset, train=self.split == "train", download=True)
        found.data = found.data.transpose(1, 2)  # the files hold columns where MNIST's hold rows
        found.targets = found.targets - int(self.subset == "letters")  # these alone count from 1
        return found

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"subset": self.subset}


class CIFAR10(TorchvisionData):
    """50,000 pictures of 10 classes at 32x32 (Krizhevsky 2009).

    Args:
        **kwargs: see `TorchvisionData`.
    """

    num_classes = 10
    wanted = "cifar-10-python.tar.gz"

    def open(self, datasets: Any) -> Any:
        return datasets.CIFAR10(str(self.root), train=self.split == "train", download=True)


class CIFAR100(TorchvisionData):
    """50,000 pictures of 100 classes at 32x32 (Krizhevsky 2009).

    Args:
        **kwargs: see `TorchvisionData`.
    """

    num_classes = 100
    wanted = "cifar-100-python.tar.gz"

    def open(self, datasets: Any) -> Any:
        return datasets.CIFAR100(str(self.root), train=self.split == "train", download=True)


class SVHN(TorchvisionData):
    """73,257 house numbers at 32x32 (Netzer et al. 2011); needs scipy.

    Args:
        **kwargs: see `TorchvisionData`.
    """

    num_classes = 10
    extra = "svhn"
    wanted = "train_32x32.mat (test_32x32.mat, extra_32x32.mat)"
    splits = ("train", "test", "extra")

    def open(self, datasets: Any) -> Any:
        return datasets.SVHN(str(self.root), split=self.split, download=True)


class STL10(TorchvisionData):
    """96x96 pictures of 10 classes (Coates et al. 2011): 100,000 without labels and 5,000 with, 105,000 by default.

    Args:
        image_size: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    wanted = "stl10_binary.tar.gz"
    splits = ("train+unlabeled", "train", "test", "unlabeled")

    def __init__(self, *, image_size: int = 48, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        self.labelled = "unlabeled" not in self.split
        self.num_classes = 10 if self.labelled else 0

    def open(self, datasets: Any) -> Any:
        return datasets.STL10(str(self.root), split=self.split, download=True)


class CelebA(TorchvisionData):
    """162,770 aligned faces of 178x218 (Liu et al. 2015), cut to the central 178x178; usual sizes are 64 and 128.

    Args:
        image_size: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    labelled = False
    extra = "celeba"
    wanted = "celeba/img_align_celeba.zip and celeba/list_eval_partition.txt with the other lists of celeba/*.txt"
    splits = ("train", "valid", "test", "all")

    def __init__(self, *, image_size: int = 64, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)

    def open(self, datasets: Any) -> Any:
        found = datasets.CelebA(str(self.root), split=self.split, target_type="identity", download=True)
        paths = [Path(found.root, found.base_folder, "img_align_celeba", name) for name in found.filename]
        return Files(paths, [0] * len(paths))


def _database(path: Path) -> Any:
    import lmdb

    return lmdb.open(str(path), readonly=True, lock=False, readahead=False, meminit=False, create=False)


class _Scenes(Source):
    """The pictures of an LSUN database, in the order of their keys.

    Args:
        path: of its folder.
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
    """Scenes (Yu et al. 2015), one category; needs lmdb. torchvision does not download it.

    Args:
        category: of the scenes, such as bedroom, church_outdoor or tower.
        image_size: see `PackedData`.
        **kwargs: see `TorchvisionData`.
    """

    labelled = False
    extra = "lsun"
    splits = ("train", "val")

    def __init__(self, *, category: str = "bedroom", image_size: int = 64, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        self.category = category
        self.wanted = f"the unpacked folder {category}_{self.split}_lmdb"

    def open(self, datasets: Any) -> Any:
        # not by torchvision, which leaves its list of keys in the current folder, one for all roots of like letters
        return _Scenes(self.root / f"{self.category}_{self.split}_lmdb")

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"category": self.category}


class Imagenet(PackedData):
    """ImageNet (Russakovsky et al. 2015) as a folder of class folders, in `train/` where there is one.

    Args:
        root: the folder.
        split: the folder inside it.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: no such folder, or no class folders with pictures.
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
            raise RefusedInput(f"data.root={root}: {inside} itself holds pictures, not one folder for each class.")
        self.classes, self.num_classes = self._folder.classes, self._folder.num_classes

    def source(self) -> Source:
        return self._folder.source()

    def identity(self) -> dict[str, Any]:
        return self._folder.identity()
