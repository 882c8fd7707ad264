"""NetworkDDP on two processes against one process with the whole batch."""

import pytest

from lit_gans.strategies.ddp import NetworkDDP

from . import ranks
from .cells import Cell, assert_trained_alike, build, half, many_images, matrix, names, train, trained_alone

pytestmark = pytest.mark.filterwarnings("ignore:Found .* in eval mode")

ADAM = [Cell(name, optimizer="adam", precision="64-true") for name in names()]
CELLS = [*matrix(), *ADAM, *map(half, names())]

BROKEN = [Cell("dcgan"), half("dcgan")]


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
    broken = {cell: train(cell, many_images(), world_size=2, strategy=NotAveraged()).state_dict() for cell in BROKEN}
    return weights, broken


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return ranks.run("tests.strategies.test_ddp.on_a_rank", tmp_path_factory.mktemp("ddp"), cells=CELLS)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_ranks_train_the_weights_of_one_process(trained, cell):
    for weights, _ in trained:
        assert_trained_alike(weights[str(cell)], cell)


def test_the_weights_move():
    for cell in CELLS:
        start, alone = build(cell).state_dict(), trained_alone(cell)
        floats = {name: value for name, value in start.items() if value.is_floating_point()}
        assert max((alone[name] - value).abs().max() for name, value in floats.items()) > 1e-3


@pytest.mark.parametrize("cell", BROKEN, ids=str)
def test_a_broken_wrapper_is_found(trained, cell):
    with pytest.raises(AssertionError):
        assert_trained_alike(trained[0][1][cell], cell)
