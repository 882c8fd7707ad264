"""Strategies chosen by a string, as with Lightning's own."""

import subprocess
import sys

import pytest
from lightning.pytorch import Trainer

from lit_gans.strategies import NAMES
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from .sabotage import environment

CLASSES = {"ddp": NetworkDDP, "fsdp": NetworkFSDP, "deepspeed": NetworkDeepSpeed}


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_finds_the_strategy_of_a_name(name):
    strategy = Trainer(strategy=name, accelerator="cpu", devices=2, logger=False).strategy
    assert type(strategy) is CLASSES[name.split("_")[1]]
    if "stage" in name:
        assert strategy.stage == int(name.split("_")[3])
        assert ("offload_optimizer" in strategy.config["zero_optimization"]) == name.endswith("offload")
    if isinstance(strategy, NetworkFSDP):
        assert (strategy.wrap == "layer", strategy.hybrid) == (name.endswith("layer"), name.endswith("hybrid"))


def test_importing_lit_gans_alone_does_not_import_lightning_for_its_registry():
    code = "import sys, lit_gans; assert not {'torch', 'lightning', 'lit_gans.strategies'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
