"""A folder of images that all say which image they are, as a datamodule, and what a training receives of data."""

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.data.sources.folder import Folder

NUM = 40


@pytest.fixture
def make(tmp_path):
    """Makes a datamodule on 40 pictures of two classes whose pixels all say which picture it is."""
    for index in range(NUM):
        path = tmp_path / "photos" / f"class_{index % 2}" / f"{index:03d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.full((10, 10, 3), index, np.uint8)
        pixels[:, :5, 0] = 255  # the left half, so that mirror images differ
        Image.fromarray(pixels).save(path)

    def data(**settings):
        common = {"image_size": 10, "batch_size": 4, "cache": str(tmp_path / "cache")}
        return Folder(str(tmp_path / "photos"), **{**common, **settings})

    return data


def numbers(images):
    """Which pictures these are."""
    return images[:, 1, 0, 0].tolist()


ORDER = [*range(0, NUM, 2), *range(1, NUM, 2)]  # of class folders, then names


def steps(data, epochs=range(1)):
    """Yields the steps of some epochs, as a training receives them."""
    loader = data.train_dataloader()
    for epoch in epochs:
        loader.sampler.set_epoch(epoch)
        for step in loader:
            step = data.transfer_batch_to_device(step, torch.device("cpu"), 0)
            yield data.on_after_batch_transfer(step, 0)
