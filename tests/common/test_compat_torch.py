"""torch's private parts are still there, and still needed."""

from datetime import timedelta
from importlib.metadata import version
from importlib.util import find_spec

import pytest
import torch
import torch.distributed as dist
from packaging.version import Version
from torch import nn

from lit_gans.common._compat import torch as _compat
from lit_gans.strategies.rendezvous import limit_waiting
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


def test_many_tensors_are_interpolated_by_a_name_that_every_allowed_torch_has():
    targets, sources = [torch.zeros(2), torch.zeros(3)], [torch.ones(2), torch.full((3,), 2.0)]
    _compat.lerp_all(targets, sources, 0.25)
    assert [target.tolist() for target in targets] == [[0.25] * 2, [0.5] * 3]
    assert oldest("torch") < Version("2.12"), "lerp_all is needless if this torch has torch.foreach"
