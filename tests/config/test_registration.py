"""A GAN or a data source of a user's own is one Python file: its class is an option, its arguments are keys."""

import sys
import types

import pytest
import torch
from lightning.pytorch import Callback

from lit_gans import RefusedInput, build, compose
from lit_gans.callbacks import EMA, IterationProgressBar
from lit_gans.config import registry
from lit_gans.config.groups import options
from lit_gans.models.dcgan import DCGAN
from lit_gans.training.module import AdversarialModule
from tests.commands import TINY

LSGAN = """
from lit_gans import DCGAN


class LSGAN(DCGAN):
    def __init__(self, target: float = 1.0, **kwargs):
        super().__init__(**kwargs)
        self.target = target
"""
SOURCE = """
from lit_gans import Digits


class Stripes(Digits):
    def __init__(self, num: int = 40, **kwargs):
        super().__init__(**kwargs)
        self.num = num
"""


@pytest.fixture
def mine(tmp_path, monkeypatch, forget):
    """The folder of a user with two files, which the process imports."""
    (tmp_path / "lsgan.py").write_text(LSGAN)
    (tmp_path / "stripes.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LIT_GANS_IMPORT", "lsgan,stripes")
    for name in ("lsgan", "stripes"):
        monkeypatch.delitem(sys.modules, name, raising=False)  # files of other tests have these names, too
    yield tmp_path
    for name in ("lsgan", "stripes"):
        sys.modules.pop(name, None)


@pytest.mark.runs
def test_a_gan_and_a_source_from_outside_are_one_python_file_each(mine, ran, refused):
    tiny = [item for item in TINY if not item.startswith(("model=", "data=", "data.batch", "metrics="))]
    own = ["model=lsgan", "data=stripes", "model.target=0.9", "data.num=20", "data.batch_size=8", "seed=3"]
    ran("train", *tiny, *own, "trainer.max_steps=2", "hydra.run.dir=run")
    last = "run/checkpoints/last.ckpt"
    ran("sample", f"checkpoint={last}", "num=2", "output=pictures")
    ran("train", *tiny, *own, "trainer.max_steps=3", f"resume={last}")
    assert "did you mean 'model.target'?" in refused("train", *tiny, *own, "model.targt=1")
    checkpoint = torch.load(last, weights_only=True)
    assert (checkpoint["global_step"], checkpoint["lit_gans"]["class_path"]) == (3, "lsgan.LSGAN")
    assert checkpoint["hyper_parameters"]["target"] == 0.9
    config = checkpoint["lit_gans"]["config"]
    assert (config["data"]["_target_"], config["data"]["num"]) == ("stripes.Stripes", 20)
    assert config["model"]["seed"] == config["data"]["seed"] == 3, "one seed for all"
    assert (mine / "pictures/grid.png").is_file()


def test_a_model_that_is_a_file_here_needs_the_variable(mine, monkeypatch):
    monkeypatch.delenv("LIT_GANS_IMPORT")
    with pytest.raises(RefusedInput, match=r"not find 'model/lsgan'; set LIT_GANS_IMPORT=lsgan before the command"):
        compose("model=lsgan")


def test_a_yaml_file_of_the_user_goes_before_the_class(mine):
    (mine / "yaml/model").mkdir(parents=True)
    (mine / "yaml/model/lsgan.yaml").write_text("defaults: [_schema/lsgan@_here_]\ntarget: 0.7\n")
    config = compose("model=lsgan", f"hydra.searchpath=[file://{mine / 'yaml'}]")
    assert config.model.target == 0.7
    assert config.model.latent_dim == 100
    assert compose("model=lsgan").model.target == 1.0


def test_a_gan_of_an_installed_package_is_found_by_its_entry_point(mine, monkeypatch, forget):
    monkeypatch.delenv("LIT_GANS_IMPORT")
    assert "lsgan" not in registry.gans()
    (mine / "lsgan-1.0.dist-info").mkdir()
    (mine / "lsgan-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: lsgan\nVersion: 1.0\n")
    (mine / "lsgan-1.0.dist-info/entry_points.txt").write_text("[lit_gans.models]\nlsgan = lsgan:LSGAN\n")
    forget()
    assert registry.gans()["lsgan"].__module__ == "lsgan"
    assert "dcgan" in registry.gans()


@pytest.mark.parametrize("name", ["nowhere_to_be_found", "mine.py", "unclosed"])
def test_a_module_that_cannot_be_imported_is_named(forget, monkeypatch, mine, name):
    (mine / "unclosed.py").write_text("y = (")
    monkeypatch.setenv("LIT_GANS_IMPORT", name)
    with pytest.raises(RefusedInput, match=rf"the module {name} \(LIT_GANS_IMPORT .* cannot be imported from .*: ."):
        registry.gans()


def test_sizes_and_seed_stand_in_one_place_where_a_class_has_them():
    config = compose("data=ring", "data.batch_size=7", "seed=5")
    assert (config.model.image_size, config.model.channels) == (1, 2), "of the points"
    assert config.model.seed == config.data.seed == 5
    assert "image_size" not in compose("metrics=digits").metrics


def test_common_bases_are_no_options():
    assert not {"image_gan", "adversarial_module"} & {*options("model")}
    assert not {"mixture", "paired_data", "torchvision_data", "packed_data"} & {*options("data")}
    assert {"ring", "digits", "folder", "cifar10"} <= {*options("data")}


def test_names_are_those_of_the_files():
    assert registry.gans()["dcgan"] is DCGAN
    callbacks = registry.classes("lit_gans.callbacks", Callback)
    assert (callbacks["ema"], callbacks["iteration_progress_bar"]) == (EMA, IterationProgressBar)
    assert {"linear", "cosine"} <= {*options("schedule")}, "without the name of the base class"


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


def test_a_class_without_a_loss_is_named(mine, monkeypatch):
    (mine / "forgot.py").write_text("from lit_gans import ImageGAN\n\n\nclass Forgot(ImageGAN):\n    pass\n")
    monkeypatch.setenv("LIT_GANS_IMPORT", "forgot")
    with pytest.raises(
        RefusedInput, match=r"'model/forgot'; Forgot is no GAN, because it does not define generator_loss"
    ):
        compose("model=forgot")
    sys.modules.pop("forgot", None)
