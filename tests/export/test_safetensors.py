"""Networks leave and come back: safetensors with their configuration, in the layout of the Hub."""

import logging
import re
import shlex

import pytest
import torch
from safetensors.torch import load_file, save_file

from lit_gans import RefusedInput, load
from lit_gans.checkpoints.exported import CARD, CONFIG, NETWORKS, SAMPLES, TRAINING, WEIGHTS
from lit_gans.checkpoints.format import read_checkpoint, to_plain
from lit_gans.export.safetensors import save_networks
from lit_gans.training.translator import Translator
from tests.gans import GANS


@pytest.fixture
def trained(tiny_gan):
    """Makes a GAN with weights that no seed gives, and averaged weights that differ from them."""

    def make(name="dcgan", **settings):
        module = tiny_gan(name, **settings).eval()
        average = module.start_average()
        with torch.no_grad():
            for number, network in enumerate((module, average)):
                for parameter in network.parameters():
                    parameter.add_(0.01 * (number + 1))
        return module

    return make


def content(module):
    """Returns the checkpoint of a module."""
    checkpoint = {"global_step": 3, "state_dict": module.state_dict()}
    checkpoint["hyper_parameters"] = to_plain(dict(module.hparams))
    module.on_save_checkpoint(checkpoint)
    return checkpoint


def images(module, **settings):
    if isinstance(module, Translator):
        return module.translate(torch.rand(3, 1, 16, 16, generator=torch.Generator().manual_seed(0)), **settings)
    return module.sample(3, seed=5, **settings)


@pytest.mark.parametrize("name", GANS)
def test_every_gan_comes_back_bitwise_with_its_discriminators_and_its_average(trained, tmp_path, name):
    module = trained(name)
    folder = save_networks(content(module), tmp_path / "networks")
    samples = () if isinstance(module, Translator) or module.image_size == 1 else (SAMPLES,)
    assert sorted(path.name for path in folder.iterdir()) == sorted((WEIGHTS, CONFIG, CARD, *samples))
    again = load(folder)
    assert type(again) is type(module)
    assert again.hparams == module.hparams
    torch.testing.assert_close(again.state_dict(), module.state_dict(), rtol=0, atol=0)
    for weights in ("ema", "raw"):
        assert torch.equal(images(again, weights=weights), images(module, weights=weights))
    assert not torch.equal(images(again, weights="ema"), images(again, weights="raw"))


def test_one_generator_alone(trained, tmp_path):
    module = trained()
    for weights in ("ema", "raw"):
        again = load(save_networks(content(module), tmp_path / weights, weights))
        assert again.averaged_generator is None
        assert torch.equal(images(again), images(module, weights=weights))
        torch.testing.assert_close(again.discriminator.state_dict(), module.discriminator.state_dict(), rtol=0, atol=0)
    with pytest.raises(RefusedInput, match="this checkpoint does not contain averaged weights"):
        save_networks(content(again), tmp_path / "none", "ema")


def test_float16_has_half_the_size_and_nearly_the_same_images(trained, tmp_path):
    module = trained(generator_width=16, discriminator_width=16)
    large, small = (save_networks(content(module), tmp_path / dtype, dtype=dtype) for dtype in ("float32", "float16"))
    assert (small / WEIGHTS).stat().st_size < 0.6 * (large / WEIGHTS).stat().st_size
    again = load(small)
    assert {value.dtype for value in again.parameters()} == {torch.float32}
    torch.testing.assert_close(images(again), images(module), rtol=0, atol=2e-3)
    with torch.no_grad():
        next(module.discriminator.parameters()).view(-1)[0] = 1e5
    with pytest.raises(RefusedInput, match=r"dtype=float16: discriminator\.\S+ has values beyond 65504"):
        save_networks(content(module), small, dtype="float16")


def test_optimizers_are_written_with_their_own_networks_alone(trained, tmp_path):
    for settings in ({"weights": "raw"}, {"dtype": "float16"}):
        with pytest.raises(RefusedInput, match="optimizers=true requires all networks in float32"):
            save_networks(content(trained()), tmp_path, optimizers=True, **settings)
    old, new = content(trained()), content(trained()) | {"global_step": 4}
    folder = save_networks(old, tmp_path / "networks", optimizers=True)
    training = (folder / TRAINING).read_bytes()
    contents = torch.load(folder / TRAINING, weights_only=True)
    torch.save({name: value for name, value in contents.items() if name != NETWORKS}, folder / TRAINING)
    with pytest.raises(RefusedInput, match=r"training\.pt does not belong to the networks in its folder"):
        load(folder)
    save_networks(new, folder)
    assert not (folder / TRAINING).exists(), "those of the networks before"
    (folder / TRAINING).write_bytes(training)
    with pytest.raises(
        RefusedInput, match=r"training\.pt does not belong to the networks in its folder, .* iteration 4"
    ):
        load(folder)


def test_the_hub_delivers_it(trained, tmp_path, monkeypatch):
    """The cache of the Hub as a download leaves it; nothing leaves this machine."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    module = trained()
    commit = "0" * 40
    repository = tmp_path / "cache" / "models--somebody--digits"
    save_networks(content(module), repository / "snapshots" / commit, optimizers=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    assert torch.equal(images(load("hf://somebody/digits")), images(module))
    assert read_checkpoint("hf://somebody/digits")["global_step"] == 3
    with pytest.raises(RefusedInput, match="hf://nobody/nothing cannot be downloaded from the Hub"):
        load("hf://nobody/nothing")


@pytest.mark.runs
@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("wgan_gp", "unconditional-image-generation"),
        ("pix2pix", "image-to-image"),
        ("cyclegan", "image-to-image"),
        ("autoencoder_kl", "image-to-image"),
    ],
)
def test_its_card_is_what_the_hub_reads_and_says_how_to_go_on(trained, train, tmp_path, name, task):
    from huggingface_hub import ModelCard

    folder = save_networks(content(trained(name)), tmp_path / "networks", optimizers=True)
    card = ModelCard.load(folder / CARD)
    assert (card.data.library_name, card.data.pipeline_tag, card.data.tags) == ("lit-gans", task, ["gan", name])
    assert "resume=FOLDER" in card.text
    assert "model.accumulate_gradients" not in card.text, "a default"
    line = re.search(r"^lit-gans train (.*)$", card.text, re.MULTILINE)[1].replace(
        "FOLDER or hf://owner/name", "networks"
    )
    data = ["data=digits"] if name == "wgan_gp" else ["data=digit_edges"]
    arguments = [word for word in shlex.split(line) if not word.startswith(("data=", "data.root"))]
    assert train(*arguments, *data, "metrics=none", "trainer.max_steps=1", "data.batch_size=4") == 0, train.err
    said = [text.partition(": ")[2] for text in train.err.splitlines() if text.startswith("init_from: ")]
    assert said
    assert {text.partition(": ")[2] for text in said} == {"100% of the weights"}


def test_a_failed_write_leaves_the_former_weights(trained, tmp_path, monkeypatch):
    folder = save_networks(content(trained()), tmp_path / "networks")
    before = load_file(folder / WEIGHTS)

    def half_written(tensors, path, metadata):
        save_file({}, path, metadata)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lit_gans.export.safetensors.save_file", half_written)
    with pytest.raises(OSError, match="No space left"):
        save_networks(content(trained()), folder, "raw")
    torch.testing.assert_close(load_file(folder / WEIGHTS), before, rtol=0, atol=0)
    assert sorted(path.name for path in folder.iterdir()) == sorted((WEIGHTS, CONFIG, CARD, SAMPLES))


def test_optimizers_of_other_networks_of_the_same_iteration_are_refused(trained, tmp_path):
    one, other = trained(seed=0), trained(seed=1)
    for name, module in (("one", one), ("other", other)):
        save_networks(content(module), tmp_path / name, optimizers=True)
    assert read_checkpoint(tmp_path / "one")["global_step"] == 3
    assert "networks_sha256" not in read_checkpoint(tmp_path / "one")
    (tmp_path / "other" / TRAINING).rename(tmp_path / "one" / TRAINING)
    with pytest.raises(RefusedInput, match=f"{TRAINING} does not belong to the networks in its folder, .* iteration 3"):
        read_checkpoint(tmp_path / "one")


def test_networks_that_do_not_fit_their_class_replace_nothing(trained, tmp_path):
    folder = save_networks(content(trained()), tmp_path / "networks", optimizers=True)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    damaged = content(trained())
    damaged["state_dict"] = {
        name: value for name, value in damaged["state_dict"].items() if not name.startswith("generator.")
    }
    with pytest.raises(RefusedInput):
        save_networks(damaged, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_what_an_export_replaces_is_named(trained, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="lit_gans")
    folder = save_networks(content(trained()), tmp_path / "networks", optimizers=True)
    assert not caplog.messages
    save_networks(content(trained()), folder)
    (message,) = caplog.messages
    assert all(name in message for name in (str(folder), WEIGHTS, CONFIG, CARD, SAMPLES, TRAINING))


def test_the_path_of_a_perceptual_network_stays_on_the_machine(trained, tmp_path):
    checkpoint = content(trained("autoencoder_kl", perceptual_file="/home/jane/private/net.pth"))
    folder = save_networks(checkpoint, tmp_path / "networks")
    assert all(b"jane" not in path.read_bytes() for path in folder.iterdir())
    assert load(folder).perceptual_file is None
    save_networks(checkpoint, folder, optimizers=True)
    assert load(folder).perceptual_file == "/home/jane/private/net.pth", "from training.pt"
