import sys
import types

import pytest
import torch

from lit_gans import RefusedInput, load
from lit_gans.callbacks import EMA
from lit_gans.checkpoints.format import flat, from_plain, read_checkpoint, to_plain
from lit_gans.config import registry
from lit_gans.models.dcgan import DCGAN
from lit_gans.training.optim import Optimizer
from lit_gans.training.schedules import Linear
from tests.tiny import SMALL, WIDTHS


@pytest.fixture
def path(tiny_gan, random_images, fit, tmp_path):
    """The checkpoint of a short training with values that are nobody's default."""
    module = tiny_gan(seed=4, r1_gamma=0.5, generator_optimizer=Optimizer("SGD", lr=0.1, schedule=Linear()))
    fit(module, random_images(), max_steps=2, callbacks=[EMA()]).save_checkpoint(tmp_path / "some.ckpt")
    return tmp_path / "some.ckpt"


def test_the_module_has_the_settings_and_weights_of_the_checkpoint(path):
    module, checkpoint = load(path), read_checkpoint(path)
    assert type(module) is DCGAN
    assert (module.seed, module.r1_gamma, module.generator_width) == (4, 0.5, 4)
    assert module.generator_optimizer == Optimizer("SGD", lr=0.1, schedule=Linear())
    assert module.discriminator_optimizer == Optimizer("Adam", lr=2e-4, betas=(0.5, 0.999))
    torch.testing.assert_close(dict(module.state_dict()), dict(checkpoint["state_dict"]), rtol=0, atol=0)
    averaged = checkpoint["generator_ema"]["state_dict"]
    torch.testing.assert_close(dict(module.averaged_generator.state_dict()), dict(averaged), rtol=0, atol=0)
    assert not any(parameter.requires_grad for parameter in module.averaged_generator.parameters())


def test_missing_damaged_and_foreign_files_are_refused(path, tmp_path):
    with pytest.raises(RefusedInput, match=r"there is no checkpoint at .*nowhere\.ckpt"):
        load(tmp_path / "nowhere.ckpt")
    truncated, text, other = tmp_path / "truncated.ckpt", tmp_path / "text.ckpt", tmp_path / "other.ckpt"
    truncated.write_bytes(path.read_bytes()[:2000])
    text.write_text("no checkpoint")
    for damaged in (truncated, text):
        with pytest.raises(
            RefusedInput, match=f"{damaged.name} cannot be read as a checkpoint: torch did not"
        ) as caught:
            load(damaged)
        assert "weights_only" not in str(caught.value)
    torch.save({"weights": torch.ones(1)}, other)
    with pytest.raises(RefusedInput, match="it has no state_dict"):
        load(other)
    torch.save({"state_dict": {}}, other)
    with pytest.raises(RefusedInput, match=r"was not made by lit_gans: it does not say its class"):
        load(other)


class Dangerous:
    def __reduce__(self):
        return exec, ("import tests.config.test_load as here; here.executed.append(1)",)


executed = []


def test_nothing_in_a_checkpoint_is_executed_or_imported(path, tmp_path):
    torch.save(read_checkpoint(path) | {"callbacks": Dangerous()}, tmp_path / "dangerous.ckpt")
    with pytest.raises(RefusedInput, match=r"cannot be read as a checkpoint: it holds an object of exec;") as caught:
        load(tmp_path / "dangerous.ckpt")
    assert not executed
    assert "weights_only" not in str(caught.value)
    checkpoint = read_checkpoint(path)
    checkpoint["lit_gans"]["class_path"] = "this.module"
    torch.save(checkpoint, tmp_path / "other.ckpt")
    with pytest.raises(
        RefusedInput, match=r"made by this\.module, .* nor a registered GAN \(.*d2gan, .*LIT_GANS_IMPORT"
    ):
        load(tmp_path / "other.ckpt")
    assert "this" not in sys.modules


def test_plain_values_are_not_imported_either():
    with pytest.raises(RefusedInput, match=r"this\.Optimizer is not imported"):
        from_plain({"class_path": "this.Optimizer", "init_args": {}})
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


def test_values_become_plain_and_come_back():
    value = {"a": (1, [2.0, None]), "b": Optimizer("SGD", schedule=Linear())}
    plain = to_plain(value)
    optimizer = plain["b"]
    assert plain["a"] == [1, [2.0, None]]
    assert optimizer["class_path"] == "lit_gans.training.optim.Optimizer"
    assert optimizer["init_args"]["schedule"]["class_path"] == "lit_gans.training.schedules.Linear"
    assert from_plain(optimizer) == Optimizer("SGD", schedule=Linear())
    assert flat({"b": optimizer})["b.lr"] == 0.001
