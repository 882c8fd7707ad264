"""NetworkDDP on two processes against one process with the whole batch."""

import pytest

from lit_gans.strategies.ddp import NetworkDDP

from . import ranks
from .cells import Cell, build, many_images, matrix, train, trained_alone

pytestmark = pytest.mark.filterwarnings("ignore:Found .* in eval mode")

CELLS = [*matrix(), *(Cell(cell.gan, 1, None, "adam") for cell in matrix() if cell.accumulate == 1 and not cell.clip)]


class NotAveraged(NetworkDDP):
    """Broken: no replica takes part in a backward."""

    def pre_backward(self, closure_loss):
        pass


def on_a_rank(cells):
    """Returns the weights of each cell."""
    weights = {}
    for cell in cells:
        module = train(cell, many_images(), world_size=2, strategy=NetworkDDP())
        weights[str(cell)] = {name: value.clone() for name, value in module.state_dict().items()}
    broken = train(Cell("dcgan"), many_images(), world_size=2, strategy=NotAveraged())
    return weights, broken.state_dict()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return ranks.run("tests.strategies.test_ddp.on_a_rank", tmp_path_factory.mktemp("ddp"), cells=CELLS)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_ranks_train_the_weights_of_one_process(trained, cell):
    alone = trained_alone(cell)
    start = build(cell).state_dict()
    assert max((alone[name] - value).abs().max() for name, value in start.items() if value.is_floating_point()) > 1e-3
    for weights, _ in trained:
        assert weights[str(cell)].keys() == alone.keys()
        differences = {name: (weights[str(cell)][name] - value).abs().max().item() for name, value in alone.items()}
        worst = max(differences, key=differences.get)
        assert differences[worst] <= 1e-6, (worst, differences[worst])


def test_a_broken_wrapper_is_found(trained):
    alone = trained_alone(Cell("dcgan"))
    differences = [(trained[0][1][name].float() - value.float()).abs().max().item() for name, value in alone.items()]
    assert max(differences) > 1e-4
