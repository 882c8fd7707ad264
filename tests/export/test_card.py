"""Model cards: the Hub reads their header; scores, licenses and samples belong to the exported weights."""

import json

import pytest
from huggingface_hub import ModelCard

from lit_gans import RefusedInput, load
from lit_gans.checkpoints.exported import CARD, CONFIG, SAMPLES
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.data.images import write_grid
from lit_gans.export.safetensors import save_networks
from tests.commands import TINY
from tests.export.test_safetensors import content

EMOJI = {"_target_": "lit_gans.data.sources.emoji.Emoji", "image_size": 16}
FOLDER = {"_target_": "lit_gans.data.sources.folder.Folder", "root": "/home/somebody/faces"}
PROTOCOL = {
    "data": "Emoji(image_size=16x16, channels=1)",
    "extractor": "efficientnet_lite0",
    "weights": "ema",
    "scores": {"Own": {"file": "/home/somebody/own.pt", "resize": "bilinear, 1/2"}},
}


@pytest.fixture
def checkpoint(tiny_gan):
    """Returns a function that makes the checkpoint of a run at iteration 3, measured at iteration `measured_at`."""

    def make(data=EMOJI, measured_at=3, protocol=PROTOCOL, name="dcgan"):
        module = tiny_gan(name).eval()
        module.start_average()
        made = content(module)
        made["lit_gans"]["config"] = {"data": data}
        values = {"metric/fid_efficientnet_lite0": 92.9, "metric/kid_efficientnet_lite0": float("nan")}
        state = {"values": values, "first": {}, "best": {}, "measured_at": measured_at, "protocol": protocol}
        made["callbacks"] = {"GenerativeMetrics(efficientnet_lite0)": state, "EMA": {}}
        return made

    return make


def header(folder):
    return ModelCard.load(folder / CARD).data


def test_the_hub_reads_license_scores_and_protocol(checkpoint, tmp_path):
    card = ModelCard.load(save_networks(checkpoint(), tmp_path / "networks") / CARD)
    assert (card.data.license, card.data.library_name, card.data.metrics) == ("cc-by-sa-4.0", "lit-gans", ["fid"])
    (result,) = card.data.eval_results
    assert (result.metric_type, result.metric_value) == ("fid", 92.9)
    assert (result.dataset_type, result.dataset_name) == ("emoji", PROTOCOL["data"])
    assert result.metric_args == {"extractor": "efficientnet_lite0"}
    assert "designed by OpenMoji, the open-source emoji and icon project. License: CC BY-SA 4.0." in card.text
    assert "| fid_efficientnet_lite0 | 92.9 |" in card.text
    protocol = json.loads(card.text.partition("```json")[2].partition("```")[0])
    assert protocol == PROTOCOL | {"scores": {"Own": {"file": "PATH", "resize": "bilinear, 1/2"}}}


def test_unknown_data_have_no_license_until_the_user_states_it(checkpoint, tmp_path):
    folder = save_networks(checkpoint(FOLDER), tmp_path / "networks")
    assert header(folder).license == "other"
    assert "use `lit-gans export ... license=IDENTIFIER`" in (folder / CARD).read_text()
    assert all("somebody" not in path.read_text() for path in (folder / CARD, folder / CONFIG))
    save_networks(checkpoint(FOLDER), folder, license="mit")
    assert header(folder).license == "mit"
    save_networks(checkpoint(FOLDER), folder, license="openrail++")
    for wrong in ("CC BY-SA 4.0", "MIT", "", "mitt", "cc-by-sa", "mit or isc"):
        with pytest.raises(RefusedInput, match=f"license={wrong}: use an identifier of the Hugging Face Hub"):
            save_networks(checkpoint(), folder, license=wrong)


@pytest.mark.parametrize(
    ("source", "license"),
    [
        ("digits.Digits", "cc-by-sa-3.0"),
        ("paired.DigitEdges", "cc-by-sa-3.0"),
        ("emoji.EmojiFonts", "cc-by-sa-4.0"),
        ("torchvision_sets.FashionMNIST", "mit"),
        ("torchvision_sets.CelebA", "other"),
        ("torchvision_sets.CIFAR10", "other"),
        ("of_somebody.Images", "other"),
    ],
)
def test_weights_carry_the_license_of_their_data(checkpoint, tmp_path, source, license):
    data = {"_target_": f"lit_gans.data.sources.{source}"}
    assert header(save_networks(checkpoint(data), tmp_path / "networks")).license == license


@pytest.mark.parametrize(
    ("name", "files", "datasets"),
    [("owner/birds", None, ["owner/birds"]), ("parquet", "/home/x/a.parquet", None), ("/home/x/birds", None, None)],
)
def test_a_dataset_of_the_hub_is_linked_and_a_local_one_is_not(checkpoint, tmp_path, name, files, datasets):
    data = {"_target_": "lit_gans.data.sources.huggingface.Huggingface", "name": name, "files": files}
    folder = save_networks(checkpoint(data), tmp_path / "networks")
    assert header(folder).datasets == datasets
    assert "/home" not in (folder / CARD).read_text()


@pytest.mark.runs
def test_the_license_of_the_first_networks_applies_too(ran, tmp_path):
    """The name in the zoo was replaced by a path, which no card contains."""
    like_zoo = ["model.generator_width=32", "model.discriminator_width=32", "data.image_size=32", "data.batch_size=4"]
    for origin, init_from, run in (
        ("zoo/dcgan_digits",) * 2 + ("first",),
        ("networks of another run", "first", "second"),
    ):
        ran("train", *TINY, *like_zoo, "trainer.max_steps=1", f"init_from={init_from}", f"hydra.run.dir={run}")
        folder = save_networks(read_checkpoint(run), tmp_path / "networks" / run)
        assert header(folder).license == "other"
        assert f"The training started from {origin}, whose license applies, too." in (folder / CARD).read_text()


def test_scores_of_other_weights_are_omitted(checkpoint, tmp_path):
    raw = checkpoint(protocol=PROTOCOL | {"weights": "raw"})
    for number, (made, weights, measured) in enumerate(
        [
            (checkpoint(), None, True),
            (checkpoint(), "ema", True),
            (checkpoint(), "raw", False),
            (checkpoint(measured_at=2), None, False),
            (raw, "raw", True),
        ]
    ):
        folder = save_networks(made, tmp_path / str(number), weights)
        assert bool(header(folder).eval_results) is measured
        assert ("not measured at iteration 3" in (folder / CARD).read_text()) is not measured


def test_an_export_of_an_export_keeps_the_record_and_replaces_the_card(checkpoint, tmp_path):
    one = save_networks(checkpoint(), tmp_path / "one", license="cc-by-4.0")
    two = save_networks(read_checkpoint(one), tmp_path / "two", dtype="float16")
    assert header(two).license == "cc-by-4.0"
    assert header(two).eval_results == header(one).eval_results
    assert "before the weights were converted to float16" in (two / CARD).read_text()
    save_networks(checkpoint(FOLDER, measured_at=2), two)
    assert (header(two).license, header(two).eval_results) == ("other", None)
    save_networks(checkpoint(FOLDER, name="pix2pix"), two)
    assert not (two / SAMPLES).exists(), "samples of the GAN before"
    config = json.loads((one / CONFIG).read_text())
    for record in (3, {"license": None}, config["record"] | {"measurements": [{"values": {"metric/fid": "low"}}]}):
        (one / CONFIG).write_text(json.dumps(config | {"record": record}))
        with pytest.raises(RefusedInput, match=r"config\.json: the entry record cannot be read"):
            save_networks(read_checkpoint(one), tmp_path / "three")


def test_samples_are_of_the_exported_weights(checkpoint, tmp_path):
    folder = save_networks(checkpoint(), tmp_path / "networks", dtype="float16")
    write_grid(load(folder).sample(16, seed=0), tmp_path / "expected.png", 4)
    assert (folder / SAMPLES).read_bytes() == (tmp_path / "expected.png").read_bytes()
    assert f"]({SAMPLES})" in (folder / CARD).read_text()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Data('/home/jane/my photos/private')", "Data('PATH')"),
        ('Data("/home/jane\'s photos")', 'Data("PATH")'),
        ("Data(root=/home/jane/my big photos/private, size=(3, 4))", "Data(root=PATH, size=(3, 4))"),
        ("Data('jane/photos', image_size=16x16)", "Data('PATH', image_size=16x16)"),
        ("jane/photos", "PATH"),
        (r"Data(C:\jane\my photos)", "Data(PATH)"),
        ("s3://jane/photos", "PATH"),
        ("bilinear, 1/2", "bilinear, 1/2"),
    ],
)
def test_a_card_contains_no_part_of_a_path(checkpoint, tmp_path, text, expected):
    folder = save_networks(checkpoint(protocol=PROTOCOL | {"data": text}), tmp_path / "networks")
    (measurement,) = json.loads((folder / CONFIG).read_text())["record"]["measurements"]
    assert measurement["protocol"]["data"] == expected


def test_a_card_says_that_classes_need_subfolders(tiny_gan, tmp_path):
    folder = save_networks(content(tiny_gan("dcgan", num_classes=3)), tmp_path / "networks")
    assert "in one subfolder of `IMAGES` for each of the 3 classes:" in (folder / CARD).read_text()
    folder = save_networks(content(tiny_gan("dcgan")), tmp_path / "other")
    assert "subfolder" not in (folder / CARD).read_text()
