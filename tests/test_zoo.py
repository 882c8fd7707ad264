"""The networks of the zoo make images of what they were trained on, and others are fine-tuned from them."""

from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard

from lit_gans import RefusedInput, load
from lit_gans.checkpoints.exported import CARD, RECORD, SAMPLES, is_exported, read_exported
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint, zoo
from lit_gans.data.faces import ATTRIBUTION
from lit_gans.data.images import to_uint8
from lit_gans.data.sources.digits import MNIST_ATTRIBUTION
from lit_gans.export.card import card_of_networks
from lit_gans.metrics.extractors.digits import DigitsExtractor

PAGE = Path(__file__).parents[1] / "docs/guides/zoo.md"
NAMES = sorted(path.name for path in zoo().iterdir() if is_exported(path))
DIGITS = [name for name in NAMES if name.endswith("_digits") and name != "pix2pix_digits"]


def test_it_is_small_and_has_all_networks():
    assert sum(path.stat().st_size for path in zoo().rglob("*")) < 20e6
    for name in NAMES:
        checkpoint = read_checkpoint(f"zoo/{name}")
        networks = {key.partition(".")[0] for key in checkpoint["state_dict"]}
        assert networks == set(load(f"zoo/{name}").network_names)
        assert len(checkpoint["generator_ema"]["state_dict"]) > 0
        assert f"zoo/{name}" in PAGE.read_text(), "the page lists it"


@pytest.mark.parametrize("name", NAMES)
def test_weights_carry_the_license_of_their_data_and_their_card_is_what_export_writes(name):
    license, attribution = ("cc-by-sa-3.0", MNIST_ATTRIBUTION)
    if "avatars" in name:
        license, attribution = ("other", ATTRIBUTION)
    found = ModelCard.load(zoo() / name / CARD)
    assert found.data.license == license
    assert attribution in found.text
    assert found.data.eval_results[0].metric_type == "fid"
    config, tensors, _ = read_exported(zoo() / name)
    assert config[RECORD]["measurements"][0]["protocol"]["weights"] == "ema"
    networks = dict.fromkeys(key.partition(".")[0] for key in tensors)
    has_samples = (zoo() / name / SAMPLES).is_file()
    assert card_of_networks(config, networks, "float16", False, has_samples) == (zoo() / name / CARD).read_text()


@pytest.mark.parametrize("name", DIGITS)
def test_digits_are_read_as_digits(name):
    """The judge is the classifier that measures the trainings; noise and a constant are one class with doubt."""
    _, logits = DigitsExtractor()(to_uint8(load(f"zoo/{name}").sample(200)))
    sure, classes = logits.softmax(1).max(1)
    assert (sure > 0.9).float().mean() > 0.5
    assert len(classes[sure > 0.9].unique()) >= 9


def test_a_name_is_found_from_any_folder_and_results_are_in_outputs(command, tmp_path):
    assert find_checkpoint("zoo/dcgan_digits").parent == zoo()
    code, _, err = command("sample", "checkpoint=zoo/dcgan_digits", "num=4")
    assert code == 0, err
    assert (tmp_path / "outputs/zoo/dcgan_digits/generated/grid.png").is_file()
    (tmp_path / "zoo").mkdir()
    mine = tmp_path / "zoo/dcgan_digits"
    mine.write_text("")
    assert find_checkpoint("zoo/dcgan_digits") == Path("zoo/dcgan_digits"), "a path that exists is meant"
    with pytest.raises(RefusedInput, match="zoo/dcgan_digit: did you mean 'dcgan_digits'"):
        load("zoo/dcgan_digit")


@pytest.mark.parametrize("frozen", [0, 2])
def test_a_run_is_fine_tuned_from_it(train, frozen):
    """From gray digits to drawings in color, with the first layers of the discriminator frozen or not."""
    tiny = ["data.batch_size=8", "metrics=none", "trainer.max_steps=1", "trainer.accelerator=cpu", "logger=csv"]
    ours = ["experiment=dcgan_digits", "init_from=zoo/dcgan_digits", f"model.freeze_discriminator={frozen}"]
    assert train(*ours, *tiny) == 0, train.err
    assert "init_from: discriminator: 100% of the weights" in train.err
    before, after = (read_checkpoint(path) for path in ("zoo/dcgan_digits", "outputs/dcgan_digits/version_0"))
    same = [
        torch.equal(after["state_dict"][key], value.float())
        for key, value in before["state_dict"].items()
        if key.startswith("discriminator.") and key.endswith("weight") and value.dim() == 4
    ]
    assert same == [index < frozen for index in range(len(same))]
