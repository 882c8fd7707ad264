"""NetworkFSDP on two processes against one process with the full batch."""

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from torch.distributed.fsdp import FSDPModule

from lit_gans.strategies.fsdp import NetworkFSDP
from tests.gans import GANS

from . import cells as tiny
from . import ranks
from .cells import (
    LOOPS,
    Cell,
    assert_trained_alike,
    build,
    covering,
    half,
    many_images,
    matrix,
    train,
    without,
)

pytestmark = pytest.mark.filterwarnings("ignore:Found .* in eval mode")

ADAM = [Cell(name, 2, 0.05, optimizer="adam", precision="64-true") for name in ("dcgan", "wgan_gp", "sngan")]
CELLS = [*covering(), *ADAM, *map(half, LOOPS)]
REST = without([*matrix(), *map(half, GANS)], CELLS)
WRAPS = ("network", "layer")


class ReshardedLate(NetworkFSDP):
    """Broken: the critic stays unsharded over the step."""

    def optimizer_step(self, optimizer, closure, model=None, **kwargs):
        penalized, self._penalized = self._penalized, {}
        try:
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        finally:
            self._penalized = penalized


class FrozenTooLong(NetworkFSDP):
    """Broken: a network that was unsharded while another trained does not learn that it trains again."""

    def optimizer_step(self, optimizer, closure, model=None, **kwargs):
        kept = self._penalized
        own = {id(p) for p in self.lightning_module.generator.parameters()}
        if any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
            self._penalized = {}
        try:
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        finally:
            self._penalized = kept


BROKEN = [ReshardedLate, FrozenTooLong]
PENALIZED = next(cell for cell in CELLS if cell.gan == "wgan_gp")


@contextmanager
def as_float32(cell):
    """Gives the cell to train for one in float64: Lightning has none for its sharded strategies, so that the module
    brings it.
    """

    def in_float64(cell):
        module = build(cell).double()
        torch.set_default_dtype(torch.float64)  # after the first weights, which are drawn in float32
        return module

    if cell.precision != "64-true":
        yield cell
        return
    try:
        with patch.object(tiny, "build", in_float64):
            yield replace(cell, precision="32-true")
    finally:
        torch.set_default_dtype(torch.float32)


def weights_of(cells, wrap):
    """Returns the weights of each cell."""
    return {str(cell): trained_by(cell, NetworkFSDP(wrap=wrap)).lightning_module_state_dict() for cell in cells}


def trained_by(cell, strategy):
    """Trains a cell and returns its strategy."""
    with as_float32(cell) as named:
        train(named, many_images(), world_size=2, strategy=strategy)
    return strategy


def on_a_rank(wrap):
    """Returns the weights of each cell, how much of each parameter a rank held, and into how many pieces each network
    was wrapped.
    """
    weights, shards, pieces = {}, {}, {}
    for cell in CELLS:
        strategy = trained_by(cell, NetworkFSDP(wrap=wrap))
        module = strategy.lightning_module
        weights[str(cell)] = strategy.lightning_module_state_dict()
        shards[str(cell)] = {name: value.to_local().numel() for name, value in module.named_parameters()}
        pieces[str(cell)] = {
            name: sum(isinstance(layer, FSDPModule) for layer in getattr(module, name).modules())
            for name in module.network_names
        }
    for strategy in BROKEN:
        weights[strategy.__name__] = trained_by(PENALIZED, strategy(wrap=wrap)).lightning_module_state_dict()
    return wrap, weights, shards, pieces


@pytest.fixture(scope="module", params=WRAPS)
def trained(request, tmp_path_factory):
    return ranks.run("tests.strategies.test_fsdp.on_a_rank", tmp_path_factory.mktemp("fsdp"), wrap=request.param)


@pytest.fixture(scope="module", params=WRAPS)
def trained_in_full(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fsdp")
    return ranks.run("tests.strategies.test_fsdp.weights_of", folder, cells=REST, wrap=request.param)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_ranks_train_the_weights_of_one_process(trained, cell):
    for _, weights, _, _ in trained:
        assert_trained_alike(weights[str(cell)], cell)


@pytest.mark.slow
@pytest.mark.parametrize("cell", REST, ids=str)
def test_so_they_do_in_the_full_product(trained_in_full, cell):
    for weights in trained_in_full:
        assert_trained_alike(weights[str(cell)], cell)


@pytest.mark.parametrize("cell", ADAM, ids=str)
def test_adam_is_compared_in_float64(trained, cell):
    for _, weights, _, _ in trained:
        assert {value.dtype for value in weights[str(cell)].values() if value.is_floating_point()} == {torch.float64}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda cls: cls.__name__)
def test_a_broken_wrapper_is_found(trained, broken):
    with pytest.raises(AssertionError, match=r"\d"):  # how far off the weights are
        assert_trained_alike(trained[0][1][broken.__name__], PENALIZED)


@pytest.mark.parametrize("cell", [Cell(name) for name in GANS], ids=str)
def test_each_layer_is_wrapped_where_it_may_be(trained, cell):
    """A penalized network is one piece: sharded separately, its layers would be reduced before the gradients of the
    penalty exist.
    """
    module = build(cell)
    for wrap, _, _, pieces in trained:
        assert pieces[str(cell)].keys() == set(module.network_names)
        for name, num in pieces[str(cell)].items():
            if wrap == "network" or name in module.penalized_networks:
                assert num == 1
            else:
                assert num > 1


@pytest.mark.parametrize("cell", [Cell(name) for name in GANS], ids=str)
def test_each_rank_holds_its_shard_only(trained, cell):
    """Sharded along the first axis: no rank has more than half of a parameter, rounded up to full rows."""
    module = build(cell)
    for name, parameter in module.named_parameters():
        rows, num = parameter.shape[0], parameter.numel()
        held = [shards[str(cell)][name] for _, _, shards, _ in trained]
        assert sum(held) == num
        assert max(held) <= (rows + 1) // 2 * (num // rows)


HYBRID = [Cell("d2gan"), Cell("wgan_gp")]


def on_a_rank_of_two_nodes(cells):
    """Returns the weights of each cell, and how much of the generator a rank held."""
    weights, held = {}, []
    for cell in cells:
        strategy = NetworkFSDP(hybrid=True)
        module = train(cell, many_images(), world_size=4, num_nodes=2, strategy=strategy)
        weights[str(cell)] = strategy.lightning_module_state_dict()
        held.append(sum(parameter.to_local().numel() for parameter in module.generator.parameters()))
    return weights, held


def test_shards_within_a_node_and_replicas_across_nodes_train_the_same(tmp_path):
    found = ranks.run("tests.strategies.test_fsdp.on_a_rank_of_two_nodes", tmp_path, 4, node_size=2, cells=HYBRID)
    for weights, _ in found:
        for cell in HYBRID:
            assert_trained_alike(weights[str(cell)], cell)
    for index, cell in enumerate(HYBRID):
        full = sum(parameter.numel() for parameter in build(cell).generator.parameters())
        held = [held[index] for _, held in found]
        assert held[0] + held[1] == held[2] + held[3] == full
