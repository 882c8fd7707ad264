"""Every GAN the four ways a user has: Hydra, the Lightning CLI, a notebook, a plain Trainer; and the commands after."""

import json

import pytest
import torch
import yaml
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from lit_gans import build, compose, load
from lit_gans.common.errors import RefusedInput
from lit_gans.config.registry import gans
from lit_gans.config.signatures import schema
from lit_gans.training.translator import Translator
from tests.commands import TINY
from tests.gans import GANS
from tests.tiny import WIDTHS

TRANSLATORS = [name for name in GANS if issubclass(gans()[name], Translator)]


def overrides(name):
    """Tiny settings of each GAN."""
    other = {f"model.{key}=4" for key in WIDTHS.keys() - schema(gans()[name])}  # widths of networks that it has not
    common = [item for item in TINY if not item.startswith(("model=", "data=", "metrics=", "model.latent"))]
    common = [item for item in common if item not in other]
    data = "digit_edges" if name in TRANSLATORS else "digits"
    depth = ["model.patch_depth=2"] if "patch_depth" in schema(gans()[name]) else []
    size = ["data.image_size=[16,32]"] if name == "d2gan" else []  # a rectangle, whose numbers are all different
    measured = ["metrics=digits", "metrics.num_samples=40", "metrics.batch_size=20"]
    return [f"model={name}", f"data={data}", *depth, *common, *size, *measured, "data.batch_size=50"]


COMPLETE = ("d2gan", "pix2pix")  # latents to images with two discriminators, and images to images


@pytest.mark.runs
@pytest.mark.parametrize(
    "name", [name if name in COMPLETE else pytest.param(name, marks=pytest.mark.slow) for name in GANS]
)
def test_hydra_then_sample_interpolate_evaluate_then_the_lightning_cli_and_a_notebook(command, tmp_path, name):
    code, out, err = command("train", *overrides(name), "trainer.max_steps=2", "hydra.run.dir=run")
    assert code == 0, err
    assert "fid_digits" in out
    last = "run/checkpoints/last.ckpt"
    module = load(last)
    assert type(module) is gans()[name]

    if name in TRANSLATORS:
        (tmp_path / "pictures").mkdir()
        for index in range(3):
            Image.new("L", (20, 20), 80 * index).save(tmp_path / "pictures" / f"{index}.png")
        assert command("sample", f"checkpoint={last}", "input=pictures")[0] == 0
        code, _, err = command("interpolate", f"checkpoint={last}")
        assert (code, "expected a GAN that maps latents to images" in err) == (2, True)
    else:
        assert command("sample", f"checkpoint={last}", "num=3")[0] == 0
        assert command("interpolate", f"checkpoint={last}", "num=2", "steps=3")[0] == 0
        assert (tmp_path / "run/generated/interpolation.png").is_file()
    assert len(list((tmp_path / "run/generated").glob("0*.png"))) >= 1

    assert command("evaluate", f"checkpoint={last}", "output=measured.json")[0] == 0
    measured = json.loads((tmp_path / "measured.json").read_text())
    trained_with = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert measured["num_samples"] == trained_with["metrics"]["num_samples"]

    code, _, err = command("fit", "-c", "run/run.yaml")
    assert code == 0, err
    again = load("run/fit/checkpoints/last.ckpt")
    torch.testing.assert_close(again.state_dict(), module.state_dict(), rtol=0, atol=0)

    by_hand, data, trainer = build(compose(*overrides(name), "trainer.max_steps=2", "trainer.default_root_dir=nb"))
    trainer.fit(by_hand, datamodule=data)
    torch.testing.assert_close(by_hand.state_dict(), module.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("name", GANS)
def test_rectangles_train_and_are_loaded_again(tiny_gan, random_images, fit, tmp_path, name):
    module = tiny_gan(name, n_critic=1, image_size=(32, 16))
    trainer = fit(module, random_images(image_size=(32, 16)), max_steps=1)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = gans()[name].load_from_checkpoint(tmp_path / "last.ckpt")
    assert again.image_size == (32, 16)
    images, _ = again.sample_grid(6, 0, random_images(image_size=(32, 16)))
    assert images.shape == (6, 1, 32, 16)
    with pytest.raises(RefusedInput, match=r"the data has image_size=16, but the model has image_size=\(32, 16\)"):
        fit(again, random_images(), max_steps=1)


@pytest.mark.parametrize("name", GANS)
def test_a_plain_trainer_on_a_plain_loader(tiny_gan, fit, name):
    class Dicts(TensorDataset):
        def __getitem__(self, index):
            image, picture, label = super().__getitem__(index)
            return {"image": image, "input": picture, "label": label}

    module = tiny_gan(name, n_critic=1)
    images, pictures = torch.rand(2, 8, 1, 16, 16) * 2 - 1
    loader = DataLoader(Dicts(images, pictures, torch.zeros(8, dtype=torch.long)), batch_size=4)
    assert fit(module, loader, max_steps=-1, max_epochs=1).global_step == 2
