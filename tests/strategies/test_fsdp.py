"""NetworkFSDP on two processes against one process with the whole batch."""

import pytest

from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .cells import Cell, assert_trained_alike, build, half, many_images, matrix, names, train, trained_alone

pytestmark = pytest.mark.filterwarnings("ignore:Found .* in eval mode")

CELLS = [*matrix(), *map(half, names())]  # Lightning has no float64 for its sharded strategies


class ReshardedLate(NetworkFSDP):
    """Broken: the critic keeps its whole weights over the step."""

    def optimizer_step(self, optimizer, closure, model=None, **kwargs):
        penalised, self._penalised = self._penalised, {}
        try:
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        finally:
            self._penalised = penalised


class FrozenTooLong(NetworkFSDP):
    """Broken: a network that was whole while another trained does not learn that it trains again."""

    def optimizer_step(self, optimizer, closure, model=None, **kwargs):
        kept = self._penalised
        own = {id(p) for p in self.lightning_module.generator.parameters()}
        if any(id(p) in own for group in optimizer.param_groups for p in group["params"]):
            self._penalised = {}
        try:
            return super().optimizer_step(optimizer, closure, model, **kwargs)
        finally:
            self._penalised = kept


BROKEN = [ReshardedLate, FrozenTooLong]
PENALISED = next(cell for cell in CELLS if cell.gan == "wgan_gp")


def on_a_rank(cells, wrap):
    """Returns the weights of each cell."""
    weights, parts = {}, {}
    for cell in cells:
        module = train(cell, many_images(), world_size=2, strategy=NetworkFSDP(wrap=wrap))
        strategy = module.trainer.strategy
        weights[str(cell)] = strategy.lightning_module_state_dict()
        parts[str(cell)] = {name: value.to_local().numel() for name, value in module.named_parameters()}
    for strategy in BROKEN:
        try:
            module = train(PENALISED, many_images(), world_size=2, strategy=strategy(wrap=wrap))
            weights[strategy.__name__] = module.trainer.strategy.lightning_module_state_dict()
        except RuntimeError as error:
            weights[strategy.__name__] = str(error)
    return weights, parts


@pytest.fixture(scope="module", params=["network", "layer"])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fsdp")
    return ranks.run("tests.strategies.test_fsdp.on_a_rank", folder, cells=CELLS, wrap=request.param)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_ranks_train_the_weights_of_one_process(trained, cell):
    for weights, _ in trained:
        assert_trained_alike(weights[str(cell)], cell)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda cls: cls.__name__)
def test_a_broken_wrapper_is_found(trained, broken):
    alone = trained_alone(PENALISED)
    weights = trained[0][0][broken.__name__]
    if not isinstance(weights, str):
        assert max((weights[name] - value).abs().max().item() for name, value in alone.items()) > 1e-4


@pytest.mark.parametrize("cell", [Cell(name) for name in names()], ids=str)
def test_each_rank_holds_its_part_only(trained, cell):
    """Cut along the first axis: no rank has more than half of a parameter, rounded up to whole rows."""
    module = build(cell)
    for name, parameter in module.named_parameters():
        rows, num = parameter.shape[0], parameter.numel()
        held = [parts[str(cell)][name] for _, parts in trained]
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


def test_parts_within_a_node_and_copies_over_nodes_train_the_same(tmp_path):
    found = ranks.run("tests.strategies.test_fsdp.on_a_rank_of_two_nodes", tmp_path, 4, node_size=2, cells=HYBRID)
    for weights, _ in found:
        for cell in HYBRID:
            assert_trained_alike(weights[str(cell)], cell)
    for index, cell in enumerate(HYBRID):
        whole = sum(parameter.numel() for parameter in build(cell).generator.parameters())
        held = [held[index] for _, held in found]
        assert held[0] + held[1] == held[2] + held[3] == whole
