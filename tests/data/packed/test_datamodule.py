"""A packed file is made once and served the same from every place."""

import logging
import pickle

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.data.packed import datamodule as packed
from lit_gans.data.packed.format import open_packed
from lit_gans.data.sources.folder import Folder
from tests.data.conftest import NUM, ORDER, numbers, steps


def test_images_labels_and_index_are_those_of_the_source(make, caplog):
    caplog.set_level(logging.INFO, "lit_gans")
    packed = make().packed
    assert numbers(packed.images) == ORDER
    assert packed.labels.tolist() == [0] * 20 + [1] * 20
    assert torch.equal(torch.cat(list(make().real_batches(7))), packed.images)
    assert make(placement="device").real_labels().tolist() == packed.labels.tolist()
    assert "packed 40 images" in caplog.text
    packed.verify()


def test_the_second_use_decodes_nothing(make, monkeypatch):
    before = make().packed.images.clone()
    monkeypatch.setattr(Folder, "source", lambda data: pytest.fail("opens the source again"))
    assert torch.equal(make().packed.images, before)


def test_whatever_decides_the_content_decides_the_name(make, tmp_path):
    settings = [{}, {"image_size": 8}, {"channels": 1}, {"crop": "none"}, {"on_error": "skip"}]
    settings += [{"background": (0, 0, 0)}]
    paths = [make(**setting).packed_path for setting in settings]
    Image.new("RGB", (3, 3)).save(tmp_path / "photos" / "class_0" / "new.png")
    paths.append(make().packed_path)
    assert len(set(paths)) == len(settings) + 1
    assert make(batch_size=2, seed=1, flip=True, placement="disk").packed_path == paths[-1]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("placement", ["device", "memory", "disk"])
def test_every_placement_serves_the_same_bits(make, placement, workers):
    expected = list(steps(make(flip=True, placement="memory", num_workers=0), range(2)))
    served = list(steps(make(flip=True, placement=placement, num_workers=workers), range(2)))
    assert len(served) == len(expected) == 20
    for one, other in zip(served, expected, strict=True):
        assert torch.equal(one["image"], other["image"])
        assert torch.equal(one["label"], other["label"])


def test_a_coin_of_seed_epoch_and_image_mirrors(make):
    coins = [{}, {}]
    for position, step in enumerate(steps(make(flip=True), range(2))):
        left = step["image"][:, 0, 0, 0] == 255
        coins[position // 10] |= dict(zip(numbers(step["image"]), left.tolist(), strict=True))
    assert all(len(coin) == NUM for coin in coins)
    assert coins[0] != coins[1]
    assert 20 < sum([*coins[0].values(), *coins[1].values()]) < 60
    other_batches = {}
    for step in steps(make(flip=True, batch_size=8)):
        left = step["image"][:, 0, 0, 0] == 255
        other_batches |= dict(zip(numbers(step["image"]), left.tolist(), strict=True))
    assert other_batches == coins[0]
    plain = [numbers(step["image"]) for step in steps(make(), range(2))]
    assert plain == [numbers(step["image"]) for step in steps(make(flip=True), range(2))], "the order stays"
    assert all((step["image"][:, 0, 0, 0] == 255).all() for step in steps(make()))


@pytest.mark.parametrize("placement", ["device", "memory", "disk"])
def test_a_resumed_training_is_bitwise_the_uninterrupted_one(make, tiny_gan, fit, placement, tmp_path):
    def save_at_seven(trainer, *_):
        if trainer.global_step == 7:
            trainer.save_checkpoint(path)

    settings = {"image_size": 16, "channels": 1, "flip": True, "placement": placement, "num_workers": 0}
    path, whole, resumed = tmp_path / "seven.ckpt", tiny_gan(), tiny_gan()
    fit(whole, make(**settings), 14, callbacks=[LambdaCallback(on_train_batch_end=save_at_seven)])
    fit(resumed, make(**settings), 14, resume=path)
    torch.testing.assert_close(resumed.state_dict(), whole.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("background", [(256, 0, 0), (0, -1, 0)])
def test_a_background_that_is_no_color_is_refused(make, background):
    with pytest.raises(RefusedInput, match=r"data.background=\[.*\]: expected red, green and blue, each from 0 to 255"):
        make(background=background)


def test_weights_that_are_all_zero_are_refused(make):
    with pytest.raises(RefusedInput, match=r"data.class_weights: all weights are 0: at least one must be greater"):
        make(class_weights={"class_0": 0, "class_1": 0.0})


@pytest.mark.parametrize("value_range", [(0, float("inf")), (-float("inf"), 0), (0, float("nan")), (1, 1)])
def test_a_value_range_that_is_no_range_is_refused(make, value_range):
    with pytest.raises(RefusedInput, match="must be greater than the first one, and both must be finite"):
        make(value_range=value_range)


def test_auto_takes_the_first_place_that_fits(make, monkeypatch):
    data, size = make(), NUM * 300
    monkeypatch.setattr(packed, "free_memory", lambda: 2 * size)
    assert data.placed(torch.device("cpu")) == "memory"
    assert data.placed(torch.device("cpu"), num_processes=2) == "disk"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * size, 9 * size))
    assert data.placed(torch.device("cuda")) == "device"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * size - 1, 9 * size))
    assert data.placed(torch.device("cuda")) == "memory"
    assert make(placement="disk").placed(torch.device("cuda")) == "disk"


def test_a_received_dataset_maps_the_file_itself(make):
    dataset = make(flip=True).dataset
    sent = pickle.dumps(dataset)
    assert len(sent) < 1000
    received = pickle.loads(sent)
    rows = torch.tensor([3, 43])
    assert torch.equal(received[rows]["image"], dataset[rows]["image"])
    assert torch.equal(received[rows]["image"][0], received[rows]["image"][1].flip(-1))
    assert open_packed(dataset.path).about["source"] == "Folder"
