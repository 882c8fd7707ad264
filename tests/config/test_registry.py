import sys
import types

import pytest
from lightning.pytorch import Callback

from lit_gans import build, compose
from lit_gans.callbacks import EMA, ProgressBar
from lit_gans.common.errors import RefusedInput
from lit_gans.config import registry
from lit_gans.models.dcgan import DCGAN
from lit_gans.training.adversarial import AdversarialModule


def test_names_are_those_of_the_files():
    assert registry.gans()["dcgan"] is DCGAN
    callbacks = registry.classes("lit_gans.callbacks", Callback)
    assert (callbacks["ema"], callbacks["progress_bar"]) == (EMA, ProgressBar)


def test_only_public_classes_of_a_module_itself_are_found(forget, monkeypatch):
    module = types.ModuleType("outside")
    for name, home in (("OwnGAN", "outside"), ("_HiddenGAN", "outside"), ("BorrowedGAN", "elsewhere")):
        setattr(module, name, types.new_class(name, (DCGAN,), exec_body=home_of(home)))
    module.AdversarialModule = AdversarialModule
    monkeypatch.setitem(sys.modules, "outside", module)
    monkeypatch.setenv("LIT_GANS_IMPORT", "outside,outside")
    found = registry.gans()
    assert found["own_gan"] is module.OwnGAN
    assert set(found) - set(registry.gan_files().values()) == {"own_gan"}


def home_of(module):
    return lambda namespace: namespace.update(__module__=module)


def test_only_the_command_line_finds_classes_of_the_current_folder(forget, command, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("from lightning.pytorch import Callback\nclass Mine(Callback): ...\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("LIT_GANS_IMPORT", "")
    config = compose("+callbacks.mine._target_=only_here.Mine", "trainer.accelerator=cpu", "metrics=none")
    before = [*sys.path]
    with pytest.raises(RefusedInput, match=r"only_here\.Mine cannot be imported"):
        build(config)
    assert sys.path == before
    assert command("--version")[0] == 0
    assert any(type(callback).__name__ == "Mine" for callback in build(config)[2].callbacks)
    sys.modules.pop("only_here")
