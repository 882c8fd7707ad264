import importlib
import sys
import types

import pytest
import torch

from lit_gans import RefusedInput, load
from lit_gans.callbacks import EMA
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.config import registry
from lit_gans.models.dcgan import DCGAN
from lit_gans.training.optim import OptimizerConfig
from lit_gans.training.schedules import LinearSchedule
from tests.tiny import SMALL, WIDTHS


@pytest.fixture
def path(tiny_gan, random_images, fit, tmp_path):
    """The checkpoint of a short training with values that are nobody's default."""
    module = tiny_gan(
        seed=4, r1_gamma=0.5, generator_optimizer=OptimizerConfig("SGD", lr=0.1, schedule=LinearSchedule())
    )
    fit(module, random_images(), max_steps=2, callbacks=[EMA()]).save_checkpoint(tmp_path / "some.ckpt")
    return tmp_path / "some.ckpt"


def test_the_module_has_the_settings_and_weights_of_the_checkpoint(path):
    module, checkpoint = load(path), read_checkpoint(path)
    assert type(module) is DCGAN
    assert (module.seed, module.r1_gamma, module.generator_width) == (4, 0.5, 4)
    assert module.generator_optimizer == OptimizerConfig("SGD", lr=0.1, schedule=LinearSchedule())
    assert module.discriminator_optimizer == OptimizerConfig("Adam", lr=2e-4, betas=(0.5, 0.999))
    torch.testing.assert_close(dict(module.state_dict()), dict(checkpoint["state_dict"]), rtol=0, atol=0)
    averaged = checkpoint["generator_ema"]["state_dict"]
    torch.testing.assert_close(dict(module.averaged_generator.state_dict()), dict(averaged), rtol=0, atol=0)
    assert not any(parameter.requires_grad for parameter in module.averaged_generator.parameters())


def test_missing_damaged_and_foreign_files_are_refused(path, tmp_path):
    with pytest.raises(RefusedInput, match=r"there is no checkpoint at .*nowhere\.ckpt"):
        load(tmp_path / "nowhere.ckpt")
    other = tmp_path / "other.ckpt"
    other.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(RefusedInput, match=r"other\.ckpt cannot be read as a checkpoint: it was not"):
        load(other)
    torch.save({"state_dict": {}}, other)
    with pytest.raises(RefusedInput, match=r"was not saved by lit_gans: it does not contain the path of its class"):
        load(other)


def test_a_class_that_another_version_had_is_named(path, tmp_path):
    checkpoint = read_checkpoint(path)
    checkpoint["hyper_parameters"]["generator_optimizer"]["class_path"] = "lit_gans.training.optim.Optimizer"
    torch.save(checkpoint, tmp_path / "other.ckpt")
    with pytest.raises(RefusedInput, match=r"lit_gans\.training\.optim has no class Optimizer: .* another version"):
        load(tmp_path / "other.ckpt")


def test_nothing_in_a_checkpoint_is_imported(path, tmp_path):
    checkpoint = read_checkpoint(path)
    checkpoint["lit_gans"]["class_path"] = "this.module"
    torch.save(checkpoint, tmp_path / "other.ckpt")
    with pytest.raises(
        RefusedInput, match=r"contains a module of this\.module, .* nor a registered GAN \(.*d2gan, .*LIT_GANS_IMPORT"
    ):
        load(tmp_path / "other.ckpt")
    assert "this" not in sys.modules


def test_a_gan_from_outside_is_loaded_by_its_own_class(tiny_gan, random_images, fit, tmp_path, monkeypatch, forget):
    module = types.ModuleType("outside_module")
    module.OtherGAN = type("OtherGAN", (DCGAN,), {"__module__": "outside_module"})
    monkeypatch.setitem(sys.modules, "outside_module", module)
    monkeypatch.setenv("LIT_GANS_IMPORT", "outside_module")
    fit(tiny_gan("other_gan"), random_images(), max_steps=1).save_checkpoint(tmp_path / "outside.ckpt")
    assert type(load(tmp_path / "outside.ckpt")) is module.OtherGAN


def test_a_class_of_this_process_is_loaded_without_being_registered(random_images, fit, tmp_path):
    def define(bonus):
        class Unregistered(DCGAN):
            """Defined in a notebook's cell, which runs more than once."""

            def extra(self):
                return bonus

        return Unregistered

    first = define(1)
    fit(first(**SMALL, **WIDTHS), random_images(), max_steps=1).save_checkpoint(tmp_path / "mine.ckpt")
    assert first not in registry.gans().values()
    assert type(load(tmp_path / "mine.ckpt")) is first
    second = define(2)
    assert type(load(tmp_path / "mine.ckpt")) is second, "the newer of two classes of the same path"


OWN = """
from lit_gans import DCGAN

class Own(DCGAN):
    def generator_loss(self, fake, batch):
        return super().generator_loss(fake, batch) * 1
"""


def test_a_class_whose_file_has_changed_since_the_save_is_reported(tmp_path, monkeypatch, random_images, fit):
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def own(text):
        (tmp_path / "users_gan.py").write_text(text)
        monkeypatch.delitem(sys.modules, "users_gan", raising=False)
        importlib.invalidate_caches()
        return importlib.import_module("users_gan").Own

    small = {"image_size": 16, "channels": 1, "generator_width": 4, "discriminator_width": 4}
    fit(own(OWN)(**small), random_images(), 1).save_checkpoint(tmp_path / "last.ckpt")
    own(OWN).load_from_checkpoint(tmp_path / "last.ckpt")
    with pytest.warns(UserWarning, match="trained with different code of Own: its file has changed since"):
        own(OWN.replace("* 1", "* 2")).load_from_checkpoint(tmp_path / "last.ckpt")
