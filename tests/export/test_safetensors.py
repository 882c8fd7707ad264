"""A generator leaves and comes back: safetensors with its configuration, in the layout of the Hub."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from lit_gans import RefusedInput
from lit_gans.export.safetensors import CARD, CONFIG, WEIGHTS, load_generator, save_generator
from tests.gans import GANS


@pytest.fixture
def trained(tiny_gan):
    """Makes a GAN with weights that no seed gives, and averaged weights that differ from them."""

    def make(name="dcgan", **settings):
        module = tiny_gan(name, **settings).eval()
        average = module.start_average()
        with torch.no_grad():
            for number, network in enumerate((module.generator, average)):
                for parameter in network.parameters():
                    parameter.add_(0.01 * (number + 1))
        return module

    return make


def images(module, **settings):
    if type(module).__name__ == "Pix2Pix":
        return module.translate(torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0)), **settings)
    return module.sample(3, seed=5, **settings)


@pytest.mark.parametrize("name", GANS)
@pytest.mark.parametrize("weights", ["ema", "raw"])
def test_every_gan_comes_back_bitwise(trained, tmp_path, name, weights):
    module = trained(name)
    folder = save_generator(module, tmp_path / "generator", weights)
    assert sorted(path.name for path in folder.iterdir()) == sorted((WEIGHTS, CONFIG, CARD))
    again = load_generator(folder)
    assert type(again) is type(module)
    assert again.hparams == module.hparams
    assert torch.equal(images(again), images(module, weights=weights))
    assert not torch.equal(images(again), images(module, weights="raw" if weights == "ema" else "ema"))


def test_classes_and_points_come_back(trained, tmp_path):
    module = trained(num_classes=10)
    again = load_generator(save_generator(module, tmp_path / "classes"))
    assert torch.equal(again.sample(4, label=7), module.sample(4, label=7))
    points = trained("gan", image_size=1, channels=2)
    assert torch.equal(images(load_generator(save_generator(points, tmp_path / "points"))), images(points))


def test_the_hub_delivers_it(trained, tmp_path, monkeypatch):
    """The cache of the Hub as a download leaves it; nothing leaves this machine."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    module = trained()
    commit = "0" * 40
    repository = tmp_path / "cache" / "models--somebody--digits"
    save_generator(module, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    again = load_generator("somebody/digits", cache=tmp_path / "cache")
    assert torch.equal(images(again), images(module))
    with pytest.raises(RefusedInput, match="nobody/nothing is neither a folder nor a repository that the Hub delivers"):
        load_generator("nobody/nothing", cache=tmp_path / "cache")


def test_its_card_is_what_the_hub_reads(trained, tmp_path):
    from huggingface_hub import ModelCard

    card = ModelCard.load(save_generator(trained(), tmp_path / "generator") / CARD)
    assert card.data.library_name == "lit-gans"
    assert card.data.pipeline_tag == "unconditional-image-generation"


def test_wrong_files_are_refused_and_run_nothing(trained, tmp_path):
    good = save_generator(trained(), tmp_path / "good")
    config = json.loads((good / CONFIG).read_text())

    def wrong(name, **changed):
        folder = tmp_path / name
        shutil.copytree(good, folder)
        (folder / CONFIG).write_text(json.dumps(config | changed))
        return folder

    with pytest.raises(RefusedInput, match="neither imported here nor a registered GAN"):
        load_generator(wrong("foreign", class_path="os.system"))
    with pytest.raises(RefusedInput, match="has format 99"):
        load_generator(wrong("newer", format_version=99))
    with pytest.raises(RefusedInput, match=r"does not fit config\.json"):
        load_generator(wrong("wider", hyper_parameters=config["hyper_parameters"] | {"generator_width": 8}))
    (good / CONFIG).write_text("[]")
    with pytest.raises(RefusedInput, match="describes no generator of lit_gans"):
        load_generator(good)
    (good / CONFIG).write_text("{")
    with pytest.raises(RefusedInput, match="cannot be read as JSON"):
        load_generator(good)
    torn = wrong("torn")
    (torn / WEIGHTS).write_bytes((torn / WEIGHTS).read_bytes()[:100])
    with pytest.raises(RefusedInput, match="cannot be read as safetensors"):
        load_generator(torn)


def test_a_failed_write_leaves_the_former_weights(trained, tmp_path, monkeypatch):
    folder = save_generator(trained(), tmp_path / "generator")
    before = load_file(folder / WEIGHTS)

    def half_written(tensors, path, metadata):
        save_file({}, path, metadata)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lit_gans.export.safetensors.save_file", half_written)
    with pytest.raises(OSError, match="No space left"):
        save_generator(trained(), folder, "raw")
    torch.testing.assert_close(load_file(folder / WEIGHTS), before, rtol=0, atol=0)
    assert sorted(path.name for path in folder.iterdir()) == sorted((WEIGHTS, CONFIG, CARD))
