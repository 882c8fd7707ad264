"""Each private part of another library that `_compat` touches is still there, and still needed.

A failure here says what has changed: use the public way that there is now, or remove what has become needless.
"""

import inspect
import tomllib
from datetime import timedelta
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.demos.boring_classes import BoringModel
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.plugins.precision import DeepSpeedPrecision
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, model_parallel
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from packaging.requirements import Requirement
from packaging.version import Version
from torch import nn

from lit_gans.strategies import _compat
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.strategies.rendezvous import limit_waiting

pytest.importorskip("deepspeed")
PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
REQUIRED = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["deepspeed"]]
BOUNDED = {(found := Requirement(text)).name: found.specifier for text in REQUIRED}


def oldest(name):
    (lower,) = (Version(bound.version) for bound in BOUNDED[name] if bound.operator == ">=")
    return lower


@pytest.mark.parametrize("name", ["torch", "lightning", "deepspeed"])
def test_versions_are_bounded_by_what_is_tested(name):
    assert any(bound.operator == "<" for bound in BOUNDED[name])
    assert Version(version(name)).base_version in BOUNDED[name]


# ---- torch


@pytest.fixture
def groups():
    """The group of this one process, and another of it."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield [dist.group.WORLD, dist.new_group([0])]
    dist.destroy_process_group()


def test_torch_lists_no_process_groups(groups):
    assert _compat.process_groups() == groups
    public = [name for name in vars(dist) if not name.startswith("_")]
    assert not {"process_groups", "list_process_groups", "get_process_groups"} & {*public}


def test_the_timeout_of_every_group_is_set(groups):
    limit_waiting(timedelta(seconds=77))
    for group in groups:
        assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=77)


def test_older_versions_of_torch_lack_the_new_names():
    assert oldest("torch") < Version("2.15"), "use torch.distributed.set_timeout and forward_sync_buffers"
    if Version(version("torch")) >= Version("2.15"):
        assert {"set_timeout"} <= vars(dist.distributed_c10d).keys()
        assert _compat.WITHOUT_BUFFER_SYNC == {"forward_sync_buffers": False}


def test_torch_has_no_public_walk_over_outputs():
    assert find_spec("torch.utils.pytree") is None
    one, two = torch.ones(1), torch.zeros(1)
    assert [*map(id, _compat.tree_leaves({"a": (one,), "b": [two]}))] == [id(one), id(two)]


def test_norms_with_running_statistics_have_no_public_base():
    assert _compat.NormBase.__name__ not in vars(nn)
    assert {nn.BatchNorm2d, nn.InstanceNorm1d, nn.SyncBatchNorm} <= {*_subclasses(_compat.NormBase)}


def _subclasses(cls):
    return [found for sub in cls.__subclasses__() for found in (sub, *_subclasses(sub))]


def test_copies_in_one_call_are_copies():
    targets, sources = ([torch.full((2,), value) for value in values] for values in ((0.0, 0.0), (1.0, 2.0)))
    _compat.copy_all(targets, iter(sources))
    assert [target.tolist() for target in targets] == [[1.0, 1.0], [2.0, 2.0]]


# ---- Lightning


def test_lightning_keeps_the_arguments_of_ddp_private():
    assert _compat.finds_unused_parameters(DDPStrategy(find_unused_parameters=True))
    assert not _compat.finds_unused_parameters(DDPStrategy())
    assert not any(name in vars(DDPStrategy) for name in ("ddp_kwargs", "find_unused_parameters")), "use the public one"


def test_lightnings_launcher_waits_for_no_process_that_it_ends():
    launcher = _SubprocessScriptLauncher(LightningEnvironment(), num_processes=2, num_nodes=1)
    assert _compat.children(launcher) == []
    assert _compat.children(None) == []
    assert ".wait(" not in inspect.getsource(_SubprocessScriptLauncher.kill)


def test_lightning_knows_its_backend_only_once_the_group_exists():
    strategy = DDPStrategy(accelerator=CPUAccelerator(), parallel_devices=[torch.device("cpu")] * 2)
    strategy.cluster_environment = LightningEnvironment()
    assert strategy.process_group_backend is None
    assert _compat.process_group_backend(strategy) == "gloo"


def test_lightnings_own_engine_calls_the_private_hooks_of_a_step():
    assert "self._after_closure(model, optimizer)" in inspect.getsource(DeepSpeedPrecision.optimizer_step)


def test_lightning_shards_over_nodes_only_by_default():
    strategy = ModelParallelStrategy(tensor_parallel_size=1)
    strategy.accelerator, strategy.parallel_devices = CPUAccelerator(), [torch.device("cpu")] * 2
    strategy.cluster_environment, strategy._lightning_module = LightningEnvironment(), BoringModel()
    with (
        patch.object(strategy, "_setup_distributed"),
        patch.object(model_parallel, "_setup_device_mesh") as mesh,
    ):
        strategy.setup_environment()
        assert mesh.call_args.args[0] == strategy.num_nodes == 1
        _compat.set_data_parallel_size(strategy, 2)
        strategy.setup_environment()
        assert mesh.call_args.args[0] == 2


@pytest.mark.parametrize("asked", [False, True])
def test_only_the_strategy_knows_of_synchronised_batch_norm(asked):
    devices = {"accelerator": "cpu", "devices": 2, "logger": False}
    trainer = Trainer(strategy=NetworkFSDP(), sync_batchnorm=asked, **devices)
    assert _compat.synchronises_batch_norm(trainer.strategy) is asked
    assert not [name for name in dir(trainer) if not name.startswith("_") and "sync" in name]


def test_lightning_insists_on_a_module_that_shards_itself():
    module = BoringModel()
    assert type(module).configure_model is LightningModule.configure_model
    strategy = ModelParallelStrategy()
    strategy.accelerator, strategy.parallel_devices = CPUAccelerator(), [torch.device("cpu")]
    strategy._lightning_module = strategy._model = module
    trainer = Trainer(accelerator="cpu", logger=False, barebones=True)
    with pytest.raises(TypeError, match="required to override the `configure_model"):
        strategy.setup(trainer)
    _compat.accept_without_configure_model(module)
    with patch.object(strategy, "barrier"):
        strategy.cluster_environment = LightningEnvironment()
        strategy.setup(trainer)


# ---- DeepSpeed: what the trainings beside this file need is found where it was


def test_only_the_forward_of_an_engine_prepares_its_backward():
    from deepspeed.runtime import engine

    assert "def _backward_prologue(self)" in inspect.getsource(engine)
    assert inspect.getsource(engine).count("self._backward_prologue()") == 1


def test_states_of_an_optimizer_are_linked_only_where_deepspeed_reads_its_own_checkpoints():
    from deepspeed.runtime.zero import stage_1_and_2

    assert inspect.getsource(stage_1_and_2).count("self._lazy_init_hp_params_optimizer_state()") == 1


def test_operations_to_compile_are_known_under_a_private_name():
    import deepspeed

    known = deepspeed.ops.__compatible_ops__
    try:
        _compat.forbid_compiled_operations(deepspeed)
        assert deepspeed.ops.__compatible_ops__ == {}
    finally:
        deepspeed.ops.__compatible_ops__ = known
