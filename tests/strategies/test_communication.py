"""Gradients that travel otherwise than as they are: held to what arithmetic says, on known gradients."""

import itertools

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lit_gans.strategies.communication import Nodes, communicate

from . import ranks

KINDS = [*itertools.product(("none", "fp16", "bf16"), (False, True)), ("powersgd", False)]


def inputs(rank):
    return torch.randn(1, 12, generator=torch.Generator().manual_seed(rank))


def on_a_rank(kinds):
    """Returns the gradient of a dense layer by kind of communication, after some steps of the same data."""
    dist.init_process_group("gloo")
    found = {}
    for compression, hierarchical in kinds:
        torch.manual_seed(0)
        layer = DistributedDataParallel(nn.Linear(12, 9, bias=False))
        communicate(layer, compression, 4, Nodes.of_size(2) if hierarchical else None)
        for _ in range(5):
            layer.zero_grad()
            # the gradient of a sum of outputs weighted by the rank: rank 1 on each rank, world size in the mean
            weights = torch.arange(9.0) + dist.get_rank()
            (layer(inputs(dist.get_rank())) * weights).sum().backward()
        found[compression, hierarchical] = layer.module.weight.grad.clone()
    return found


@pytest.fixture(scope="module")
def gradients(tmp_path_factory):
    return ranks.run(
        "tests.strategies.test_communication.on_a_rank", tmp_path_factory.mktemp("hooks"), 4, node_size=2, kinds=KINDS
    )


def local(rank):
    return (torch.arange(9.0) + rank)[:, None] * inputs(rank)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_rank_has_the_mean_gradient_to_the_rounding_of_its_kind(gradients, kind):
    mean = sum(local(rank) for rank in range(4)) / 4
    rounding = {"none": 1e-6, "fp16": 2**-10, "bf16": 2**-7, "powersgd": 1e-4}[kind[0]]
    for found in gradients:
        torch.testing.assert_close(found[kind], gradients[0][kind], rtol=0, atol=0)
        error = (found[kind] - mean).abs().max() / mean.abs().max()
        assert error <= rounding
    if kind[0] in ("fp16", "bf16"):
        assert error > 1e-6, "it did travel in half precision"


def test_nodes_are_consecutive_ranks(tmp_path):
    assert ranks.run("tests.strategies.test_communication.groups", tmp_path, 3, node_size=2) == [
        ([0, 1], 0, [0, 2]),
        ([0, 1], 0, [0, 2]),
        ([2], 2, [0, 2]),
    ]


def groups():
    dist.init_process_group("gloo")
    nodes = Nodes.of_size(2)
    members = [0, 2]  # a rank outside a group cannot list it
    return dist.get_process_group_ranks(nodes.own), nodes.leader, members
