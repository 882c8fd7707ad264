"""Strategies chosen by a string, as with Lightning's own, and the package without the rest of lit_gans."""

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

ALONE = """
import sys

class Blocks:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(BLOCKED):
            raise ImportError(f"{name} is blocked")

ROOMS = "benchmark callbacks cli conf config data metrics models networks training"
BLOCKED = ("hydra", "deepspeed", *(f"lit_gans.{room}" for room in ROOMS.split()))
sys.meta_path.insert(0, Blocks())

import torch
from lightning.pytorch import Trainer

import lit_gans  # registers the names, since Lightning is there
import lit_gans.strategies.fsdp
from tests.strategies.own_modules import Own

module = Own()
before = [parameter.clone() for parameter in module.parameters()]
switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
trainer = Trainer(strategy="network_ddp", devices=1, accelerator="cpu", max_steps=2, **dict.fromkeys(switches, False))
trainer.fit(module)
assert not any(torch.equal(one, other) for one, other in zip(before, module.parameters()))
print("trained by", type(trainer.strategy).__name__, sorted(name for name in sys.modules if name.startswith(BLOCKED)))
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_trainer_finds_the_strategy_of_a_name(name):
    strategy = Trainer(strategy=name, accelerator="cpu", devices=2, logger=False).strategy
    assert type(strategy) is CLASSES[name.split("_")[1]]
    if "stage" in name:
        assert strategy.stage == int(name.split("_")[3])
        assert ("offload_optimizer" in strategy.config["zero_optimization"]) == name.endswith("offload")
    if isinstance(strategy, NetworkFSDP):
        assert (strategy.wrap == "layer", strategy.hybrid) == (name.endswith("layer"), name.endswith("hybrid"))


def test_the_strategies_train_without_the_rest_of_the_package():
    done = subprocess.run([sys.executable, "-c", ALONE], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "trained by NetworkDDP []" in done.stdout


def test_importing_lit_gans_alone_does_not_import_lightning_for_its_registry():
    code = "import sys, lit_gans; assert not {'torch', 'lightning', 'lit_gans.strategies'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
