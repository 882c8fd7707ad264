"""NetworkFSDP on two processes against one process with the whole batch."""

import pytest

from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks
from .cells import matrix, train
from .test_ddp import many_images

pytestmark = pytest.mark.filterwarnings("ignore:Found .* in eval mode")

CELLS = matrix()  # Lightning has no float64 for its sharded strategies


def on_a_rank(cells, wrap):
    """Returns the weights of each cell."""
    weights, parts = {}, {}
    for cell in cells:
        module = train(cell, many_images(), world_size=2, strategy=NetworkFSDP(wrap=wrap))
        strategy = module.trainer.strategy
        weights[str(cell)] = strategy.lightning_module_state_dict()
        parts[str(cell)] = {name: value.to_local().numel() for name, value in module.named_parameters()}
    return weights, parts


@pytest.fixture(scope="module", params=["network", "layer"])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fsdp")
    return ranks.run("tests.strategies.test_fsdp.on_a_rank", folder, cells=CELLS, wrap=request.param)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_ranks_train_the_weights_of_one_process(trained, cell):
    alone = train(cell, many_images()).state_dict()
    for weights, _ in trained:
        assert weights[str(cell)].keys() == alone.keys()
        differences = {name: (weights[str(cell)][name] - value).abs().max().item() for name, value in alone.items()}
        worst = max(differences, key=differences.get)
        assert differences[worst] <= 1e-6, (worst, differences[worst])
