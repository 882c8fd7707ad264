"""Gradients that travel otherwise than as they are: held to what arithmetic says, on known gradients."""

import itertools
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lit_gans.strategies.ddp import Nodes, communicate

from . import ranks

pytestmark = pytest.mark.ranks

ROWS, COLUMNS = 40, 48  # large enough that PowerSGD finds the matrix worth compressing
KINDS = [*itertools.product(("none", "fp16", "bf16"), (False, True))]
POWERSGD_RANKS = [4, 2]  # the mean gradient of four ranks with one picture each has rank 4
PLAIN_STEPS = 2  # before PowerSGD begins
STEPS = 5
MANY_STEPS = 100
BUCKETS = 6


def inputs(rank):
    return torch.randn(1, COLUMNS, generator=torch.Generator().manual_seed(rank))


def weights(rank):
    return torch.randn(ROWS, generator=torch.Generator().manual_seed(100 + rank))


def local(rank):
    """The gradient of a rank's outputs, weighted and added up: a matrix of rank 1."""
    return weights(rank)[:, None] * inputs(rank)


def mean():
    return sum(local(rank) for rank in range(4)) / 4


def steps(num, *settings):
    """Returns the gradients of a dense layer, after some steps of the same data."""
    torch.manual_seed(0)
    layer = DistributedDataParallel(nn.Linear(COLUMNS, ROWS, bias=False))
    communicate(layer, *settings)
    found = []
    for _ in range(num):
        layer.zero_grad()
        (layer(inputs(dist.get_rank())) * weights(dist.get_rank())).sum().backward()
        found.append(layer.module.weight.grad.clone())
    return found


def on_a_rank():
    """Returns the last gradient by kind of communication, and all of PowerSGD."""
    dist.init_process_group("gloo")
    found = {}
    for compression, hierarchical in KINDS:
        nodes = Nodes.of_size(2) if hierarchical else None
        found[compression, hierarchical] = steps(STEPS, compression, 4, nodes)[-1]
    return found, {rank: steps(MANY_STEPS, "powersgd", rank, None) for rank in POWERSGD_RANKS}


def on_a_rank_with_buckets():
    """Returns the number of elements of each all-reduce in one step of PowerSGD with a bucket for each layer, and the
    gradients.
    """
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    network = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(BUCKETS)))
    replica = DistributedDataParallel(network, bucket_cap_mb=64 * 64 * 4 / 2**20)
    communicate(replica, "powersgd", 2, None)
    numbers, images = [], inputs(dist.get_rank()).repeat(1, 2)[:, :64]
    all_reduce = dist.all_reduce
    for _ in range(MANY_STEPS):
        replica.zero_grad()
        numbers.clear()
        with patch.object(
            dist, "all_reduce", lambda tensor, **more: (numbers.append(len(tensor)), all_reduce(tensor, **more))[1]
        ):
            replica(images).square().sum().backward()
    return numbers, [layer.weight.grad for layer in network]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return ranks.run("tests.strategies.test_comm_hooks.on_a_rank", tmp_path_factory.mktemp("hooks"), 4, node_size=2)


def distance(gradient):
    """Returns how far a gradient is from the mean, relative to its largest element."""
    return ((gradient - mean()).abs().max() / mean().abs().max()).item()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_rank_has_the_mean_gradient_to_the_rounding_of_its_kind(found, kind):
    rounding = {"none": 1e-6, "fp16": 2**-10, "bf16": 2**-7}[kind[0]]
    for gradients, _ in found:
        torch.testing.assert_close(gradients[kind], found[0][0][kind], rtol=0, atol=0)
        assert distance(gradients[kind]) <= rounding
    if kind[0] in ("fp16", "bf16"):
        assert distance(found[0][0][kind]) > 1e-6, "it did travel in half precision"


def test_powersgd_is_exact_where_its_rank_is_that_of_the_gradient(found):
    assert torch.linalg.matrix_rank(mean()) == 4
    for _, powersgd in found:
        for gradient, first in zip(powersgd[4], found[0][1][4], strict=True):
            torch.testing.assert_close(gradient, first, rtol=0, atol=0)
            assert distance(gradient) <= 1e-4  # its rounding adds up with the errors fed back


def test_powersgd_of_a_smaller_rank_makes_up_for_what_it_left_out(found):
    for _, powersgd in found:
        plain, compressed = powersgd[2][:PLAIN_STEPS], powersgd[2][PLAIN_STEPS:]
        assert max(map(distance, plain)) <= 1e-6
        assert all(torch.linalg.matrix_rank(gradient, rtol=1e-4) == 2 for gradient in compressed)
        assert min(map(distance, compressed)) > 0.1
        assert distance(torch.stack(compressed).mean(0)) < 0.05


def test_powersgd_reduces_one_bucket_after_the_other(tmp_path):
    """Each has three all-reduces: were they mixed, ranks would add up different tensors."""
    first, second = ranks.run("tests.strategies.test_comm_hooks.on_a_rank_with_buckets", tmp_path)
    assert first[0] == second[0] == [0, 2 * 64, 2 * 64] * BUCKETS
    torch.testing.assert_close(first[1], second[1], rtol=0, atol=0)
