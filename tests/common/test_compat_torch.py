"""torch's private parts are still there, and still needed."""

from contextlib import nullcontext
from datetime import timedelta
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec

import pytest
import torch
import torch.distributed as dist
from packaging.version import Version
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from lit_gans.common._compat import torch as _compat
from lit_gans.strategies.processes import limit_waiting
from tests.common.bounds import oldest


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
    """Beside which `copy_all`, `lerp_all`, `norm_all`, `set_timeout` and `WITHOUT_BUFFER_SYNC` have the old ones."""
    assert oldest("torch") < Version("2.15"), (
        "use torch.distributed.set_timeout, torch.autograd.graph.queue_callback, forward_sync_buffers, torch.foreach"
    )
    if Version(version("torch")) >= Version("2.15"):
        assert {"set_timeout"} <= vars(dist.distributed_c10d).keys()
        assert "queue_callback" in vars(torch.autograd.graph)
        assert _compat.WITHOUT_BUFFER_SYNC == {"forward_sync_buffers": False}
        foreach = import_module("torch.foreach")
        assert (_compat._copy, _compat._lerp, _compat._norm) == (foreach.copy_, foreach.lerp_, foreach.norm)


def test_torch_has_no_public_walk_over_outputs():
    assert find_spec("torch.utils.pytree") is find_spec("torch.pytree") is None
    one, two = torch.ones(1), torch.zeros(1)
    assert [*map(id, _compat.tree_leaves({"a": (one,), "b": [two]}))] == [id(one), id(two)]
    assert _compat.tree_map(id, {"a": (one,), "b": [two]}) == {"a": (id(one),), "b": [id(two)]}


def test_operators_are_seen_only_with_a_private_class():
    assert find_spec("torch.utils.python_dispatch") is find_spec("torch.dispatch") is None
    assert _compat.TorchDispatchMode.__module__ == "torch.utils._python_dispatch"


def test_reading_a_number_is_an_operator_with_a_private_name():
    operators = []

    class Recorded(_compat.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            operators.append(func)
            return func(*args, **(kwargs or {}))

    with Recorded():
        assert float(torch.tensor(3.0)) == 3
    assert operators[-1] is _compat.NUMBER_OF_TENSOR


def test_norms_with_running_statistics_have_no_public_base():
    norms = nn.BatchNorm2d, nn.InstanceNorm1d, nn.SyncBatchNorm
    assert all(issubclass(norm, _compat.NormBase) for norm in norms)
    shared = set.intersection(*({*norm.__mro__} for norm in norms)) - {object, nn.Module}
    assert not [base for base in shared if not base.__name__.startswith("_")], "use the public one"


@pytest.mark.runs
def test_a_module_does_not_say_that_it_is_compiled():
    module, compiled = nn.Linear(1, 1), nn.Linear(1, 1)
    compiled.compile()
    assert [_compat.is_compiled(each) for each in (module, compiled)] == [False, True]
    public = [name for name in dir(compiled) if not name.startswith("_")]
    assert [name for name in public if "compile" in name] == ["compile"], "use the public one"


def test_factors_of_a_loss_are_those_of_its_terms_and_not_of_a_network():
    weight, images = torch.ones(3, requires_grad=True), torch.rand(2, 3)
    first, second = (weight * images * 5.0).relu().mean(), (weight * images).square().mean()
    loss = first * torch.tensor(0.25) - second / 8 + torch.add(first, second, alpha=0.75) * (2 * second)
    assert sorted(_compat.loss_factors(loss)) == [(0.25, False), (0.75, False), (2.0, False), (8.0, True)]


def test_a_tensor_has_no_public_count_of_its_changes():
    tensor = torch.zeros(2)
    before = _compat.version_of(tensor)
    tensor.detach().add_(1)
    assert _compat.version_of(tensor) == before + 1
    public = [name for name in dir(tensor) if not name.startswith("_")]
    assert not [name for name in public if "version" in name], "use the public one"


def test_torch_has_no_public_store(groups):
    assert not {"get_default_store", "default_store"} & {*dir(dist)}
    _compat.default_store().set("a", "b")
    assert _compat.default_store().get("a") == b"b"


def test_torch_says_in_the_next_backward_that_ddp_has_not_reduced(groups):
    replica = nn.parallel.DistributedDataParallel(nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]))
    for layers, reduces in ((2, True), (1, False)):
        replica.reducer.prepare_for_backward([])
        sum(layer(torch.ones(1, 2)).sum() for layer in replica.module[:layers]).backward()
        assert _compat.reduces_all(replica) == reduces


def test_fsdp_declares_methods_only(groups):
    """It gathers nothing where a module inside is called."""
    network = fully_shard(nn.Sequential(nn.Linear(2, 2)), mesh=init_device_mesh("cpu", (1,)))
    inputs = torch.ones(1, 2)
    with pytest.raises(RuntimeError, match="DTensor"):
        network[0](inputs)
    (inputs,), _ = _compat.begin_forward(network, (inputs,), {})
    assert _compat.is_computing(network)
    outputs = _compat.end_forward(network, (inputs,), network[0](inputs))
    assert not _compat.is_computing(network)
    outputs.register_hook(_compat.begin_backward(network))
    outputs.sum().backward()
    torch.testing.assert_close(network[0].weight.grad.full_tensor(), torch.ones(2, 2))


def test_the_end_of_a_backward_pass_calls_back_only_without_an_error():
    private = torch.autograd.Variable._execution_engine.queue_callback
    assert hasattr(torch.autograd.graph, "queue_callback") == (_compat.at_end_of_backward != private)
    called = []

    def fail(_):
        raise ArithmeticError

    for hooks in ([], [fail]):
        start = torch.ones(1, requires_grad=True)
        middle = 2 * start
        for hook in hooks:
            middle.register_hook(hook)
        end = middle.exp()
        end.register_hook(lambda _, hooks=hooks: _compat.at_end_of_backward(lambda: called.append(len(hooks))))
        with pytest.raises(ArithmeticError) if hooks else nullcontext():
            end.sum().backward()
        assert called == [0]


def test_the_public_scale_is_a_number():
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    assert _compat.scale_of(scaler) is None
    scaler.scale(torch.ones(1))
    assert isinstance(scaler.get_scale(), float), "read from the device"
    assert _compat.scale_of(scaler) == torch.tensor(8.0)


def test_torch_lists_neither_hooks_of_all_modules_nor_options_of_prints():
    assert not [name for name in dir(nn.modules.module) if name.startswith(("get_module", "module_hooks"))]
    assert not {"get_printoptions", "printoptions"} & {*dir(torch)}, "use the public one"
    before = _compat.global_module_hooks()
    handle = nn.modules.module.register_module_forward_hook(print)
    assert _compat.global_module_hooks() != before
    _compat.set_global_module_hooks(before)
    assert _compat.global_module_hooks() == before
    handle.remove()
    assert _compat.print_options().keys() == {"precision", "threshold", "edgeitems", "linewidth", "sci_mode"}


def test_torch_has_no_public_delay_of_a_device(monkeypatch):
    assert not hasattr(torch.cuda, "sleep")
    monkeypatch.setattr(torch.cuda, "_sleep", (cycles := []).append)
    _compat.delay_device(1e-3)
    assert cycles == [3_000_000], "at least a millisecond, at up to 3 GHz"
