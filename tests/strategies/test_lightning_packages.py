"""The strategies train modules of `lightning.pytorch` and of `pytorch_lightning`, whichever their authors import."""

import importlib
import sys
from importlib.util import find_spec

import pytest
import torch

from . import ranks
from .own_modules import Own
from .test_own_module import trained_alone

STRATEGIES = ("network_ddp", "network_fsdp", "network_deepspeed_stage_2")
PACKAGES = ("lightning.pytorch", "pytorch_lightning")
OWN = "tests.strategies.own_modules"
OF_LIGHTNING = {"lightning", "lightning_fabric", "pytorch_lightning"}

pytestmark = pytest.mark.skipif(find_spec("pytorch_lightning") is None, reason="pytorch_lightning is not installed")


def forget():
    """Forgets both packages, this project and the modules of its tests, as in a new process."""
    for name in [*sys.modules]:
        if name.partition(".")[0] in OF_LIGHTNING | {"lit_gans"} or name == OWN:
            del sys.modules[name]


def trainer_of(pl, **arguments):
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    quiet = dict.fromkeys((*switches, "use_distributed_sampler"), False)
    return pl.Trainer(accelerator="cpu", max_epochs=1, **quiet, **arguments)


def train(package):
    """Trains with each strategy, and returns the weights, and which packages were imported."""
    forget()
    pl = importlib.import_module(package)
    own = importlib.import_module(OWN).Own
    assert issubclass(own, pl.LightningModule)
    found = {}
    for strategy in STRATEGIES:
        trainer = trainer_of(pl, strategy=strategy, devices=2)
        trainer.fit(own())
        found[strategy] = dict(trainer.strategy.lightning_module_state_dict())
    return found, {name.partition(".")[0] for name in sys.modules} & OF_LIGHTNING


@pytest.mark.parametrize("package", PACKAGES)
def test_two_ranks_train_the_weights_of_one_process(tmp_path, package):
    for weights, imported in ranks.run(f"{__name__}.train", tmp_path, package=package):
        assert imported == ({"lightning"} if package == PACKAGES[0] else OF_LIGHTNING - {"lightning"})
        for strategy in STRATEGIES:
            torch.testing.assert_close(weights[strategy], trained_alone(Own), rtol=0, atol=1e-6)


def before_both(package):
    """Imports the strategies before either package, and asks the Trainers of both for one; returns what they say."""
    forget()
    importlib.import_module("lit_gans.strategies")
    first, second = (importlib.import_module(name) for name in (package, *({*PACKAGES} - {package})))
    strategy = trainer_of(first, strategy="network_fsdp", devices=2).strategy
    assert isinstance(strategy, first.strategies.DDPStrategy)
    try:
        trainer_of(second, strategy="network_ddp", devices=2)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("package", PACKAGES)
def test_imported_first_they_follow_the_trainer_that_asks_first(tmp_path, package):
    [(error, sentence)] = ranks.run(f"{__name__}.before_both", tmp_path, 1, package=package)
    (other,) = {*PACKAGES} - {package}
    assert error == "RefusedInput"
    assert f"a Trainer of {other} uses a strategy of lit_gans, but the strategies already use {package}" in sentence


def companions():
    """Imports `pytorch_lightning`, then classes of the strategies; returns whether they are of that package."""
    forget()
    pl = importlib.import_module("pytorch_lightning")
    strategies = importlib.import_module("lit_gans.strategies")
    average = importlib.import_module("lit_gans.strategies.average")
    manual = importlib.import_module("lit_gans.strategies.manual_optimization")
    scaling = importlib.import_module("lit_gans.strategies.grad_scaling")
    return [
        issubclass(average.NetworkAverage, pl.Callback),
        issubclass(manual.CountIterations, pl.Callback),
        issubclass(scaling.NetworkScaling, pl.plugins.MixedPrecision),
        issubclass(strategies.NetworkDDP, pl.strategies.Strategy),
    ]


def test_callbacks_and_plugins_are_of_the_package_that_is_imported(tmp_path):
    assert ranks.run(f"{__name__}.companions", tmp_path, 1) == [[True] * 4]


def commands():
    forget()
    importlib.import_module("lit_gans.cli.commands.train")
    return "pytorch_lightning" in sys.modules


def test_the_commands_do_not_import_the_package_that_they_do_not_use(tmp_path):
    assert ranks.run(f"{__name__}.commands", tmp_path, 1) == [False]
