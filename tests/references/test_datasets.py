"""Data sets of StyleGAN and R3GAN: their tool writes what we read, and their loader reads what we write."""

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.data.packed.stylegan import write_stylegan
from lit_gans.data.sources.folder import Folder
from tests.references.conftest import checkout

CODE = ["NVlabs+stylegan3", "brownvc+R3GAN"]
# classes that are neither those of the folders nor in their order
LABELS = [index * 3 % 5 for index in range(12)]


@pytest.fixture(params=[1, 3])
def channels(request):
    return request.param


@pytest.fixture
def images(channels):
    shape = (12, channels, 16, 16)
    return torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.fixture
def folder(images, tmp_path):
    """A folder of pictures in subfolders, with `dataset.json`."""
    labels = []
    for index, image in enumerate(images):
        name = f"{index % 2}/{index // 2}.png"
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).squeeze(2).contiguous().numpy()).save(tmp_path / "folder" / name)
        labels.append([name, LABELS[index]])
    (tmp_path / "folder/dataset.json").write_text(json.dumps({"labels": labels}))
    return tmp_path / "folder"


def source(path, channels):
    return Folder(str(path), image_size=16, channels=channels, batch_size=4, cache=str(path.parent / path.stem))


@pytest.mark.parametrize("code", CODE)
@pytest.mark.parametrize("name", ["made.zip", "made"])
def test_a_data_set_of_their_tool(folder, images, channels, monkeypatch, code, name):
    pytest.importorskip("click")
    made = folder.parent / name
    with checkout(code):
        tool = Path(sys.path[0]) / "dataset_tool.py"
        monkeypatch.setattr(sys, "argv", [str(tool), "--source", str(folder), "--dest", str(made)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(tool), run_name="__main__")
    assert ended.value.code == 0
    order = [*range(0, 12, 2), *range(1, 12, 2)]  # of the subfolders
    data = source(made, channels)
    assert torch.equal(data.packed.images, images[order])
    assert [int(data.class_names[label]) for label in data.packed.labels] == [LABELS[index] for index in order]


@pytest.mark.parametrize("code", CODE)
def test_their_loader_reads_our_archive(folder, channels, code):
    data = source(folder, channels)
    write_stylegan(data, folder.parent / "ours.zip")
    with checkout(code) as load:
        dataset = load("training.dataset").ImageFolderDataset(str(folder.parent / "ours.zip"), use_labels=True)
        assert dataset.image_shape == [channels, 16, 16]
        assert (dataset.resolution, dataset.label_dim, dataset.has_onehot_labels) == (16, data.num_classes, True)
        assert len(dataset) == 12
        for index, (image, label) in enumerate(dataset):
            assert np.array_equal(image, data.packed.images[index])
            assert label.argmax() == data.packed.labels[index]
            if index == len(dataset) - 1:
                break
        dataset.close()
