"""Strategies chosen by a string, as with Lightning's own, and the package without the rest of lit_gans."""

import importlib
import subprocess
import sys

import pytest
import torch
from lightning.pytorch import Trainer

from lit_gans.strategies import NAMES
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .sabotage import environment

CLASSES = {"ddp": NetworkDDP, "fsdp": NetworkFSDP, "deepspeed": NetworkDeepSpeed}

OTHERS = ("benchmarks", "callbacks", "cli", "conf", "config", "data", "metrics", "models", "networks", "training")
BLOCKED = ("hydra", "deepspeed", *(f"lit_gans.{room}" for room in OTHERS))


class Blocks:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(BLOCKED):
            raise ImportError(f"{name} is blocked")


def without_the_rest():
    """Imports everything of this project anew, without what is blocked, and trains with a strategy by its name."""
    for name in [*sys.modules]:
        if name.partition(".")[0] in ("lit_gans", "hydra", "deepspeed"):
            del sys.modules[name]
    sys.modules.pop("tests.strategies.own_modules", None)
    sys.meta_path.insert(0, Blocks())
    importlib.import_module("lit_gans")  # registers the names, since Lightning is there
    module = importlib.import_module("tests.strategies.own_modules").Own()
    before = [parameter.clone() for parameter in module.parameters()]
    trainer = ranks.quiet_trainer(strategy="network_ddp", devices=1, max_steps=2)
    trainer.fit(module)
    assert not any(torch.equal(one, other) for one, other in zip(before, module.parameters(), strict=True))
    return type(trainer.strategy).__name__, [name for name in sys.modules if name.startswith(BLOCKED)]


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_finds_the_strategy_of_a_name(name):
    strategy = Trainer(strategy=name, accelerator="cpu", devices=2, logger=False).strategy
    assert type(strategy) is CLASSES[name.split("_")[1]]
    if "stage" in name:
        assert strategy.stage == int(name.split("_")[3])
        assert ("offload_optimizer" in strategy.config["zero_optimization"]) == name.endswith("offload")
    if isinstance(strategy, NetworkFSDP):
        assert (strategy.wrap == "layer", strategy.hybrid) == (name.endswith("layer"), name.endswith("hybrid"))


def test_the_strategies_train_without_the_rest_of_the_package(tmp_path):
    assert ranks.run(f"{__name__}.without_the_rest", tmp_path, world_size=1) == [("NetworkDDP", [])]


def test_importing_lit_gans_alone_does_not_import_lightning_for_its_registry():
    code = "import sys, lit_gans; assert not {'torch', 'lightning', 'lit_gans.strategies'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
