"""Sources of datasets that torchvision downloads and parses. Their images are packed like the images of a folder."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from torchvision import datasets

from lit_gans.common.errors import RefusedInput, import_extra, install_command, refusing
from lit_gans.common.size import Size
from lit_gans.data.decoding import Decoding, Picture, read_picture
from lit_gans.data.digests import digest_of_files
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.format import PerProcess, Source
from lit_gans.data.sources.digits import MNIST_ATTRIBUTION, MNIST_LICENSE
from lit_gans.data.sources.folder import Files


class _TorchvisionData(PackedData):
    """Base class of sources that read a torchvision dataset.

    Files that are missing in `root` are downloaded if torchvision supports the download. If the contents of the files
    change, they are packed again.

    Args:
        root: folder of the dataset files, in the layout of torchvision; null uses `torchvision` in the cache folder.
        split: split of the dataset; null uses the training split.
        image_size: see `PackedData`.
        **kwargs: see `PackedData`.

    Raises:
        RefusedInput: the split is unknown, or files neither exist nor can be downloaded. The message lists the missing
            files.
    """

    reader: type[datasets.VisionDataset]  # torchvision class that the default implementation of `open` uses
    takes_split = False  # whether the torchvision class has `split` and `labels` instead of `train` and `targets`
    wanted: str  # files that users must place in `root` if torchvision cannot download them
    identified_by_content = True
    contents: str  # glob pattern of the image files in `root`; attribute names in braces are replaced by their values
    splits: tuple[str, ...] = ("train", "test")
    border = 0  # number of black pixels to add on each side

    def __init__(
        self,
        *,
        root: str | None = None,
        split: str | None = None,
        image_size: Size = 32,
        **kwargs: Any,
    ) -> None:
        super().__init__(image_size=image_size, **kwargs)
        self.root = Path(root).expanduser() if root else self.cache / "torchvision"
        self.split = split or self.splits[0]
        if self.split not in self.splits:
            raise RefusedInput(f"split={self.split} must be one of {', '.join(self.splits)}.")

    def open(self, **where: Any) -> Source:
        """Returns the images of the dataset as a source.

        Args:
            **where: arguments `root` and `download` of the torchvision class.
        """
        part = {"split": self.split} if self.takes_split else {"train": self.split == "train"}
        return self.items(self.reader(**part, **where))

    def items(self, dataset: Any) -> Source:
        """Wraps a torchvision dataset as a source."""
        labels = dataset.labels if self.takes_split else dataset.targets
        name = f"{type(self).__name__} ({self.split})"
        return _Items(dataset, name, np.asarray(labels).reshape(-1) if self.num_classes else None, self.border)

    def source(self) -> Source:
        problem = f"data.root={self.root}: {type(self).__name__} can be neither read from this folder nor downloaded"
        with refusing(f"{problem}; put {self.wanted} into {self.root}"):
            return self.open(root=str(self.root), download=True)

    def identity(self) -> dict[str, Any]:
        if not self._files():
            self.source()  # downloads the files
        return {"split": self.split, "files": digest_of_files(self._files(), self.cache)}

    def _files(self) -> list[Path]:
        return sorted(path for path in self.root.glob(self.contents.format(**vars(self))) if path.is_file())


class _Items(Source):
    """Source of the images in a torchvision dataset, whose items are pairs (image, label).

    Args:
        dataset: torchvision dataset.
        name: name of the dataset, for error messages.
        labels: class index of each image; None if there are no classes.
        border: see `_TorchvisionData`.
    """

    def __init__(self, dataset: Any, name: str, labels: np.ndarray | None, border: int) -> None:
        self.dataset, self._name, self.labels, self.border = dataset, name, labels, border

    def __len__(self) -> int:
        return len(self.dataset)

    def name(self, index: int) -> str:
        return f"{self._name} number {index}"

    def picture(self, index: int, notes: list[str]) -> Image.Image:
        return ImageOps.expand(self.dataset[index][0], self.border)


class CIFAR10(_TorchvisionData):
    """50,000 images of 10 classes at 32x32 (Krizhevsky 2009).

    Args:
        **kwargs: see `_TorchvisionData`.
    """

    num_classes = 10
    reader = datasets.CIFAR10
    wanted = "cifar-10-python.tar.gz"
    contents = "cifar-10-batches-py/*"


class CIFAR100(_TorchvisionData):
    """50,000 images of 100 classes at 32x32 (Krizhevsky 2009).

    Args:
        **kwargs: see `_TorchvisionData`.
    """

    num_classes = 100
    reader = datasets.CIFAR100
    wanted = "cifar-100-python.tar.gz"
    contents = "cifar-100-python/*"


class SVHN(_TorchvisionData):
    """73,257 house numbers at 32x32 (Netzer et al. 2011); requires scipy (extra `svhn`).

    Args:
        **kwargs: see `_TorchvisionData`.
    """

    license, attribution = "other", "Street View House Numbers (Netzer et al. 2011), for non-commercial use only"
    num_classes = 10
    reader, takes_split = datasets.SVHN, True
    wanted = "train_32x32.mat (test_32x32.mat, extra_32x32.mat)"
    contents = "{split}_32x32.mat"
    splits = ("train", "test", "extra")

    def open(self, **where: Any) -> Source:
        import_extra("scipy", "svhn")  # torchvision reads the files with scipy
        return super().open(**where)


class STL10(_TorchvisionData):
    """96x96 images of 10 classes (Coates et al. 2011): 100,000 without labels and 5,000 with labels.

    The default split contains all 105,000 images, without classes.

    Args:
        **kwargs: see `_TorchvisionData`.
    """

    reader, takes_split = datasets.STL10, True
    wanted = "stl10_binary.tar.gz"
    contents = "stl10_binary/*"
    splits = ("train+unlabeled", "train", "test", "unlabeled")

    def __init__(self, *, image_size: Size = 48, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        self.num_classes = 0 if "unlabeled" in self.split else 10


class CelebA(_TorchvisionData):
    """162,770 aligned faces (Liu et al. 2015) of 178x218 pixels, by default cropped to the central 178x178 pixels.

    Common image sizes are 64 and 128.

    Args:
        **kwargs: see `_TorchvisionData`.
    """

    license, attribution = "other", "CelebA (Liu et al. 2015), for non-commercial research only"
    wanted = "celeba/img_align_celeba.zip and celeba/list_eval_partition.txt with the other lists of celeba/*.txt"
    contents = "celeba/**/*.[jt][px][gt]"
    splits = ("train", "valid", "test", "all")

    def __init__(self, *, image_size: Size = 64, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)

    def open(self, **where: Any) -> Source:
        folder = self.root / datasets.CelebA.base_folder
        images, archive = folder / "img_align_celeba", folder / "img_align_celeba.zip"
        if archive.is_file() and not images.is_dir():  # torchvision unpacks only what it downloads
            with TemporaryDirectory(dir=folder) as part:
                datasets.utils.extract_archive(str(archive), part)
                Path(part, images.name).rename(images)
        named = {"root": str(self.root), "split": self.split, "target_type": "identity"}
        try:
            celeba = datasets.CelebA(**named)
        except RuntimeError as error:  # files are missing
            if find_spec("gdown") is None:
                raise RuntimeError(f"the package gdown is missing: {install_command('celeba')}") from error
            celeba = datasets.CelebA(**named, download=True)
        paths = [Path(celeba.root, celeba.base_folder, "img_align_celeba", name) for name in celeba.filename]
        return Files(paths, decoding=self.frame.decoding)

    def _files(self) -> list[Path]:
        files = super()._files()  # before the archive is unpacked, there are only the lists
        return files if any(path.suffix == ".jpg" for path in files) else []


class _Gray28(_TorchvisionData):
    """Base class of datasets with 28x28 grayscale images, which are padded with black to 32x32."""

    num_classes = 10
    border = 2

    def __init__(self, *, channels: int = 1, **kwargs: Any) -> None:
        super().__init__(channels=channels, **kwargs)


class MNIST(_Gray28):
    """60,000 digits (LeCun et al. 1998), padded from 28x28 to 32x32.

    Args:
        **kwargs: see `_TorchvisionData`.
    """

    metrics = "digits"
    license, attribution = MNIST_LICENSE, MNIST_ATTRIBUTION
    reader = datasets.MNIST
    wanted = "MNIST/raw/train-images-idx3-ubyte.gz, MNIST/raw/train-labels-idx1-ubyte.gz and the two t10k files"
    contents = "MNIST/raw/*-ubyte"


class FashionMNIST(_Gray28):
    """60,000 images of clothing (Xiao et al. 2017), padded from 28x28 to 32x32.

    Args:
        **kwargs: see `_TorchvisionData`.
    """

    license, attribution = "mit", "Fashion-MNIST, copyright Zalando SE. License: MIT"
    reader = datasets.FashionMNIST
    wanted = "FashionMNIST/raw/train-images-idx3-ubyte.gz, .../train-labels-idx1-ubyte.gz and the two t10k files"
    contents = "FashionMNIST/raw/*-ubyte"


class LSUN(_TorchvisionData):
    """Scenes of a single LSUN category (Yu et al. 2015); requires lmdb (extra `lsun`).

    torchvision does not download this dataset.

    Args:
        category: category of the scenes, such as bedroom, church_outdoor or tower.
        **kwargs: see `_TorchvisionData`.
    """

    splits = ("train", "val")
    contents = "{category}_{split}_lmdb/data.mdb"

    def __init__(self, *, category: str = "bedroom", image_size: Size = 64, **kwargs: Any) -> None:
        super().__init__(image_size=image_size, **kwargs)
        self.category = category
        self.wanted = f"the unpacked folder {category}_{self.split}_lmdb"

    def open(self, **where: Any) -> Source:
        # torchvision's class would cache its list of keys in the current folder under an ambiguous name
        return _Scenes(self.root / f"{self.category}_{self.split}_lmdb", self.frame.decoding)

    def identity(self) -> dict[str, Any]:
        return super().identity() | {"category": self.category}


class _Scenes(Source):
    """Source of the images in an LSUN database, in the order of their keys.

    Args:
        path: path of the database folder.
        decoding: see `Decoding`.
    """

    def __init__(self, path: Path, decoding: Decoding) -> None:
        self.path, self.decoding, self._database = path, decoding, PerProcess(partial(_database, path))
        with self._database().begin() as reading:
            self.keys = list(reading.cursor().iternext(keys=True, values=False))

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, index: int) -> str:
        return f"{self.path} key {self.keys[index].decode(errors='replace')}"

    def picture(self, index: int, notes: list[str]) -> Picture:
        with self._database().begin() as reading:
            return read_picture(bytes(reading.get(self.keys[index])), notes, self.decoding, self.name(index))


def _database(path: Path) -> Any:
    lmdb = import_extra("lmdb", "lsun")
    return lmdb.open(str(path), readonly=True, lock=False, readahead=False, meminit=False, create=False)
