"""The strategies need torch and Lightning only: everything else that is installed is blocked."""

import importlib
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions

import pytest
import torch
from packaging.requirements import Requirement

from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .own_modules import Own


def normal(name):
    return re.sub("[-_.]+", "-", name).lower()


def required(names, found):
    """Adds to a set the distributions of some names, and all that these require without an extra."""
    for name in {normal(name) for name in names} - found:
        try:
            requires = [Requirement(text) for text in distribution(name).requires or ()]
        except PackageNotFoundError:
            continue
        found.add(name)
        required([each.name for each in requires if each.marker is None or each.marker.evaluate({"extra": ""})], found)
    return found


def blocked(more=()):
    """Returns the importable names of what is installed and neither torch and Lightning nor something they require."""
    allowed = required(["torch", "lightning", *more], set()) | {"lit-gans"}
    owners = packages_distributions().items()
    return {top for top, names in owners if not allowed & {normal(name) for name in names}} - {"tests"}


class Blocks:
    def __init__(self, names):
        self.names = names

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)


def import_anew(names):
    """Makes the next imports of this project fail if they need what is blocked."""
    for name in [*sys.modules]:
        if name.partition(".")[0] in {*names, "lit_gans"} or name == "tests.strategies.own_modules":
            del sys.modules[name]
    sys.meta_path.insert(0, Blocks(names))


def alone(names, strategies):
    """Imports this project anew, without what is blocked, trains, and returns what it imported of the project."""
    import_anew(names)
    importlib.import_module("lit_gans")  # registers the names, since Lightning is there
    own = importlib.import_module("tests.strategies.own_modules").Own
    for strategy in strategies:
        trainer = ranks.quiet_trainer(strategy=strategy, devices=1, max_steps=2)
        trainer.fit(own())
        after = trainer.strategy.lightning_module_state_dict().values()
        assert not any(torch.equal(one, other) for one, other in zip(own().parameters(), after, strict=True))
    return {name.split(".")[1] for name in sys.modules if name.startswith("lit_gans.")}


STRATEGIES = {(): ("network_ddp", "network_fsdp"), ("deepspeed",): ("network_deepspeed",)}


@pytest.mark.parametrize("more", STRATEGIES)
def test_strategies_train_with_everything_blocked_but_torch_and_lightning(tmp_path, more):
    names = blocked(more)
    assert {"hydra", "safetensors", "jaxtyping", "torchvision", "rich", "matplotlib"} <= names
    [rooms] = ranks.run(f"{__name__}.alone", tmp_path, 1, names=names, strategies=STRATEGIES[more])
    assert rooms == {"common", "checkpoints", "strategies"}


def test_sharded_checkpoints_fail_at_the_start_where_safetensors_is_missing(monkeypatch):
    strategy = NetworkFSDP(sharded_checkpoints=True)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ModuleNotFoundError, match="safetensors"):
        ranks.quiet_trainer(strategy=strategy, devices=1, max_epochs=1).fit(Own())
