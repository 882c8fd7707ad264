"""Images that are stored on the device are those in main memory, in the same order, and are gathered there."""

import torch
from lightning.pytorch.callbacks import LambdaCallback
from PIL import Image

from lit_gans.data.sources.digits import Digits
from lit_gans.data.sources.folder import Folder


def test_images_on_the_device_are_those_in_memory(tiny_gan, device, train, tmp_path):
    for index in range(12):
        Image.new("L", (16, 16), 20 * index).save(tmp_path / f"{index}.png")
    seen = {}
    for placement in ("memory", "device"):
        settings = {"image_size": 16, "channels": 1, "batch_size": 4, "flip": True}
        data = Folder(str(tmp_path), cache=str(tmp_path / "cache"), placement=placement, **settings)
        batches = seen.setdefault(placement, [])
        note = LambdaCallback(on_train_batch_start=lambda *given, batches=batches: batches.append(given[2]["image"]))
        train(tiny_gan("dcgan"), data, device, 4, callbacks=[note])
    assert {images.device.type for batches in seen.values() for images in batches} == {device.type}
    assert all(torch.equal(*pair) for pair in zip(*seen.values(), strict=True))


def test_a_source_in_memory_is_copied_to_a_gpu_once(tiny_gan, device, train):
    data, seen = Digits(image_size=16, batch_size=4), []
    loader = Digits(image_size=16, batch_size=4).train_dataloader()
    expected = [step["image"] for step, _ in zip(loader, range(4), strict=False)]
    note = LambdaCallback(on_train_batch_start=lambda *given: seen.append(given[2]["image"]))
    train(tiny_gan("dcgan"), data, device, 4, callbacks=[note])
    assert all(torch.equal(one.cpu(), other) for one, other in zip(seen, expected, strict=True))
    assert (data._resident is not None) == (device.type == "cuda")
    assert {images.device.type for images in seen} == {device.type}


def test_auto_places_few_images_on_a_gpu_alone(device, tmp_path):
    Image.new("L", (16, 16)).save(tmp_path / "0.png")
    data = Folder(str(tmp_path), cache=str(tmp_path / "cache"), image_size=16, channels=1)
    assert data.placed(device) == {"cpu": "memory", "cuda": "device"}[device.type]
