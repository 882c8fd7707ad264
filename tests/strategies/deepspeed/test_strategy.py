"""NetworkDeepSpeed on two processes against one process with the whole batch."""

import pytest

from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from tests.strategies import ranks
from tests.strategies.cells import Cell, assert_trained_alike, build, half, many_images, matrix, names, train

pytestmark = pytest.mark.filterwarnings("ignore:Found .* in eval mode")

STAGES = [0, 1, 2, 3]
PENALISED = {name for name in names() if build(Cell(name)).penalised_networks}
ALL = [*matrix(), *map(half, names())]
CELLS = {stage: [cell for cell in ALL if stage < 3 or cell.gan not in PENALISED] for stage in STAGES}


class ClipsByDefault(NetworkDeepSpeed):
    """Broken: gradients are clipped at DeepSpeed's own default."""

    def _config_of(self, network):
        return super()._config_of(network) | {"gradient_clipping": 1.0}


def weights_of(cell, strategy):
    module = train(cell, many_images(), world_size=2, strategy=strategy)
    return {name: value.clone() for name, value in module.state_dict().items()}


def on_a_rank(cells, stage):
    """Returns the weights of each cell."""
    weights = {str(cell): weights_of(cell, NetworkDeepSpeed(stage=stage)) for cell in cells}
    if stage:
        weights["offloaded"] = weights_of(OFFLOADED, NetworkDeepSpeed(stage=stage, offload_optimizer=True))
    if stage == 3:  # which lets layers as small as these stay whole, if not told otherwise
        freed = {"zero_optimization": {"stage3_param_persistence_threshold": 0}}
        weights |= {f"freed {cell}": weights_of(cell, NetworkDeepSpeed(stage=3, config=freed)) for cell in FREED}
    return weights | {"broken": weights_of(BROKEN, ClipsByDefault(stage=stage))}


FREED = [Cell("sngan"), Cell("d2gan", accumulate=2, clip=0.05)]
OFFLOADED = Cell("d2gan", accumulate=2, clip=0.05)
BROKEN = Cell("pix2pix")  # whose gradients are larger than 1


@pytest.fixture(scope="module", params=STAGES)
def trained(request, tmp_path_factory):
    folder, stage = tmp_path_factory.mktemp("deepspeed"), request.param
    weights = ranks.run("tests.strategies.deepspeed.test_strategy.on_a_rank", folder, cells=CELLS[stage], stage=stage)
    return stage, weights


@pytest.mark.parametrize("cell", ALL, ids=str)
def test_two_ranks_train_the_weights_of_one_process(trained, cell):
    stage, weights = trained
    if cell not in CELLS[stage]:
        pytest.skip("refused: see below")
    for found in weights:
        assert_trained_alike(found[str(cell)], cell)


@pytest.mark.parametrize("cell", FREED, ids=str)
def test_weights_that_are_freed_after_each_use_train_the_same(trained, cell):
    stage, weights = trained
    if stage < 3:
        pytest.skip("stage 3 alone frees weights")
    for found in weights:
        assert_trained_alike(found[f"freed {cell}"], cell)


def test_optimizer_states_on_the_cpu_change_nothing(trained):
    stage, weights = trained
    for found in weights if stage else ():
        assert_trained_alike(found["offloaded"], OFFLOADED)


def test_a_broken_wrapper_is_found(trained):
    with pytest.raises(AssertionError, match=r"\d"):  # how far off the weights are
        assert_trained_alike(trained[1][0]["broken"], BROKEN)
