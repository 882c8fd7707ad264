"""Every usual data set from small files in its real format, without a network."""

import hashlib
import io
import os
import pickle
import re
import shutil
import sys

import lmdb
import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from torchvision import datasets

from lit_gans.common.errors import RefusedInput
from lit_gans.data.sources.torchvision_sets import (
    CIFAR10,
    CIFAR100,
    LSUN,
    MNIST,
    STL10,
    SVHN,
    CelebA,
    FashionMNIST,
)

from .test_digits import write_mnist

NUM = 20
RNG = np.random.default_rng(0)
PIXELS = {side: RNG.integers(0, 256, (NUM, side, side, 3), dtype=np.uint8) for side in (32, 96)}
GRAY = RNG.integers(0, 256, (NUM, 28, 28), dtype=np.uint8)
SOURCES = {source.__name__: source for source in (MNIST, FashionMNIST, CIFAR10, CIFAR100, SVHN, STL10, CelebA, LSUN)}
LABELS = (np.arange(NUM) * 7 % 10).astype(np.uint8)


def md5(path):
    return hashlib.md5(path.read_bytes()).hexdigest()


@pytest.fixture
def make(tmp_path):
    return lambda cls, **settings: cls(root=str(tmp_path), cache=str(tmp_path / "cache"), batch_size=2, **settings)


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST"])
def test_the_family_of_mnist(make, tmp_path, name):
    write_mnist(tmp_path, name, GRAY, LABELS)
    for split, order in (("train", 1), ("test", -1)):
        packed = make(SOURCES[name], split=split).packed
        expected = np.pad(GRAY[::order], ((0, 0), (2, 2), (2, 2)))
        assert np.array_equal(packed.images.squeeze(1).numpy(), expected)
        assert packed.labels.tolist() == LABELS[::order].tolist()
    assert make(SOURCES[name], channels=3, image_size=16).packed.images.shape == (NUM, 3, 16, 16)


def test_replaced_files_are_packed_again(make, tmp_path):
    write_mnist(tmp_path, "MNIST", GRAY, LABELS)
    first = make(MNIST).packed.images.clone()
    path = tmp_path / "MNIST/raw/train-images-idx3-ubyte"
    content, stat = path.read_bytes(), path.stat()
    path.write_bytes(content[:16] + content[16:][::-1])
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert not torch.equal(make(MNIST).packed.images, first)


@pytest.mark.parametrize(("name", "key"), [("CIFAR10", "labels"), ("CIFAR100", "fine_labels")])
def test_cifar(make, tmp_path, monkeypatch, name, key):
    write_cifar(tmp_path, monkeypatch, name, key)
    for split, order in (("train", 1), ("test", -1)):
        packed = make(SOURCES[name], split=split).packed
        assert np.array_equal(packed.images.permute(0, 2, 3, 1).numpy(), PIXELS[32][::order])
        assert packed.labels.tolist() == LABELS[::order].tolist()


def write_cifar(root, patch, name="CIFAR10", key="labels"):
    """Writes a small CIFAR set in its true format; patches the checksums, which are of the real files."""
    cls = getattr(datasets, name)
    folder = root / cls.base_folder
    folder.mkdir(parents=True)
    for files, order in ((cls.train_list, 1), (cls.test_list, -1)):
        pixels = PIXELS[32][::order].transpose(0, 3, 1, 2).reshape(len(files), NUM // len(files), -1)
        labels = LABELS[::order].reshape(len(files), -1).tolist()
        for (file, _), rows, classes in zip(files, pixels, labels, strict=True):
            (folder / file).write_bytes(pickle.dumps({"data": rows, key: classes}))
    meta = [str(number) for number in range(100)]
    (folder / cls.meta["filename"]).write_bytes(pickle.dumps({cls.meta["key"]: meta}))
    for table in ("train_list", "test_list"):
        patch.setattr(cls, table, [[file, md5(folder / file)] for file, _ in getattr(cls, table)])
    patch.setattr(cls, "meta", {**cls.meta, "md5": md5(folder / cls.meta["filename"])})


def test_svhn_whose_files_call_zero_ten(make, tmp_path, monkeypatch):
    path = tmp_path / "train_32x32.mat"
    digits = np.where(LABELS == 0, 10, LABELS)[:, None]
    savemat(path, {"X": PIXELS[32].transpose(1, 2, 3, 0), "y": digits})
    monkeypatch.setitem(datasets.SVHN.split_list, "train", ["", path.name, md5(path)])
    packed = make(SVHN).packed
    assert np.array_equal(packed.images.permute(0, 2, 3, 1).numpy(), PIXELS[32])
    assert packed.labels.tolist() == LABELS.tolist()


def test_stl10(make, tmp_path, monkeypatch):
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    columns = PIXELS[96].transpose(0, 3, 2, 1)
    (folder / "train_X.bin").write_bytes(columns[:8].tobytes())
    (folder / "train_y.bin").write_bytes((LABELS[:8] + 1).tobytes())
    (folder / "unlabeled_X.bin").write_bytes(columns[8:].tobytes())
    (folder / "test_X.bin").write_bytes(columns[:3].tobytes())
    (folder / "test_y.bin").write_bytes((LABELS[:3] + 1).tobytes())
    for table in ("train_list", "test_list"):
        files = [[file, md5(folder / file)] for file, _ in getattr(datasets.STL10, table)]
        monkeypatch.setattr(datasets.STL10, table, files)
    everything, labeled = make(STL10, image_size=96), make(STL10, image_size=96, split="train")
    assert np.array_equal(everything.packed.images.permute(0, 2, 3, 1).numpy(), PIXELS[96])
    assert everything.num_classes == 0
    assert everything.packed.labels.tolist() == [0] * NUM
    assert labeled.packed.labels.tolist() == LABELS[:8].tolist()
    assert labeled.num_classes == 10
    assert len(make(STL10, split="test").packed.images) == 3


def test_celeba_is_cropped_to_its_central_square(make, tmp_path, monkeypatch):
    paths = write_celeba(tmp_path, monkeypatch)
    with Image.open(paths[1]) as read:
        picture = np.asarray(read)
    data = make(CelebA, image_size=178)
    assert np.array_equal(data.packed.images[1].permute(1, 2, 0).numpy(), picture[20:198])
    assert len(data.packed.images) == 2
    assert make(CelebA, split="all").packed.images.shape == (4, 3, 64, 64)
    paths[0].write_bytes(b"")
    with pytest.raises(RefusedInput, match=f"{paths[0].name} cannot be read as an image"):
        _ = make(CelebA, image_size=128).packed


def test_celeba_is_identified_by_the_images_in_its_archive(make, tmp_path, monkeypatch):
    write_celeba(tmp_path, monkeypatch)
    monkeypatch.setitem(sys.modules, "gdown", None)  # nothing is downloaded
    expected, folder = make(CelebA).packed_path, tmp_path / "celeba/img_align_celeba"
    shutil.make_archive(str(folder), "zip", folder.parent, folder.name)
    shutil.rmtree(folder)
    assert make(CelebA).packed_path == expected
    assert len(make(CelebA).packed.images) == 2


def test_the_download_of_celeba_needs_an_extra(make, tmp_path, monkeypatch):
    monkeypatch.setattr("lit_gans.data.sources.torchvision_sets.find_spec", lambda name: None)
    said = (
        r"put celeba/img_align_celeba.zip and .* into .*: the package gdown is missing: install it with: .*\[celeba\]"
    )
    with pytest.raises(RefusedInput, match=rf"data.root={tmp_path}: CelebA can be neither .*{said}"):
        _ = make(CelebA).packed


def write_celeba(root, patch):
    """Writes four pictures as the files of CelebA, two of them for training; returns their paths, patches checksums."""
    folder = root / "celeba"
    (folder / "img_align_celeba").mkdir(parents=True)
    names = [f"{number:06d}.jpg" for number in range(1, 5)]
    for name in names:
        pixels = Image.fromarray(RNG.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((178, 218))
        pixels.save(folder / "img_align_celeba" / name)
    splits = (0, 0, 1, 2)
    texts = {
        "list_eval_partition.txt": "".join(f"{name} {part}\n" for name, part in zip(names, splits, strict=True)),
        "identity_CelebA.txt": "".join(f"{name} {5}\n" for name in names),
        "list_bbox_celeba.txt": "4\nimage_id x y w h\n" + "".join(f"{name} 1 2 3 4\n" for name in names),
        "list_landmarks_align_celeba.txt": "4\nx y\n" + "".join(f"{name} 1 2\n" for name in names),
        "list_attr_celeba.txt": "4\nYoung\n" + "".join(f"{name} -1\n" for name in names),
    }
    for file, text in texts.items():
        (folder / file).write_text(text)
    files = [("", "", "img_align_celeba.zip"), *(("", md5(folder / file), file) for file in texts)]
    patch.setattr(datasets.CelebA, "file_list", files)
    return [folder / "img_align_celeba" / name for name in names]


def test_lsun(make, tmp_path):
    with lmdb.open(str(tmp_path / "tower_train_lmdb"), map_size=2**22) as database, database.begin(write=True) as txn:
        for number, pixels in enumerate(PIXELS[32][:5]):
            content = io.BytesIO()
            Image.fromarray(pixels).save(content, "webp", lossless=True)
            txn.put(f"{number:03d}".encode(), content.getvalue())
    packed = make(LSUN, category="tower", image_size=32).packed
    assert np.array_equal(packed.images.permute(0, 2, 3, 1).numpy(), PIXELS[32][:5])
    with pytest.raises(RefusedInput, match=r"put the unpacked folder bedroom_train_lmdb into"):
        _ = make(LSUN).packed


@pytest.mark.parametrize("name", SOURCES)
def test_what_cannot_be_fetched_says_what_to_put_where(make, tmp_path, monkeypatch, name):
    def offline(*arguments, **settings):
        raise OSError("no network")

    for place in ("urllib.request.urlopen", "torchvision.datasets.celeba.download_file_from_google_drive"):
        monkeypatch.setattr(place, offline)
    data = make(SOURCES[name])
    with pytest.raises(RefusedInput, match=re.escape(f"put {data.wanted} into {tmp_path}: ")):
        data.setup("fit")


def test_an_unknown_split_is_refused(make):
    with pytest.raises(RefusedInput, match="split=valid must be one of train, test"):
        make(CIFAR10, split="valid")
