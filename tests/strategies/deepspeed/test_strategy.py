"""NetworkDeepSpeed on two processes against one process with the full batch."""

from functools import cache

import pytest

from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from tests.gans import GANS
from tests.strategies import ranks
from tests.strategies.cells import (
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

STAGES = [0, 1, 2, 3]
SHARDED = [1, 2, 3]  # the stages that shard optimizer states
PENALIZED = {name for name in GANS if build(Cell(name)).penalized_networks}
COVERING = [*covering(), *map(half, LOOPS)]
REST = without([*matrix(), *map(half, GANS)], COVERING)
FREED = [Cell("sngan"), Cell("d2gan", accumulate=2, clip=0.05)]
OFFLOADED = Cell("d2gan", accumulate=2, clip=0.05)
BROKEN = Cell("pix2pix")  # whose gradients are larger than 1


def supported(cells, stage):
    """The cells that a stage trains: stage 3 refuses a gradient penalty (see `test_refusals`)."""
    return [cell for cell in cells if stage < 3 or cell.gan not in PENALIZED]


def pairs(cells):
    return [(stage, cell) for stage in STAGES for cell in supported(cells, stage)]


class ClipsByDefault(NetworkDeepSpeed):
    """Broken: gradients are clipped at DeepSpeed's own default."""

    def _config_of(self, network):
        return super()._config_of(network) | {"gradient_clipping": 1.0}


def trained_by(cell, strategy):
    module = train(cell, many_images(), world_size=2, strategy=strategy)
    return {name: value.clone() for name, value in module.state_dict().items()}


def weights_of(cells, stage):
    """Returns the weights of each cell."""
    return {str(cell): trained_by(cell, NetworkDeepSpeed(stage=stage)) for cell in cells}


def on_a_rank(stage):
    """Returns the weights of each cell, with settings that must not change them, and of a broken wrapper."""
    weights = weights_of(supported(COVERING, stage), stage)
    weights["broken"] = trained_by(BROKEN, ClipsByDefault(stage=stage))
    if stage in SHARDED:
        weights["offloaded"] = trained_by(OFFLOADED, NetworkDeepSpeed(stage=stage, offload_optimizer=True))
    if stage == 3:  # by default, layers as small as these stay unsharded
        freed = {"zero_optimization": {"stage3_param_persistence_threshold": 0}}
        weights |= {f"freed {cell}": trained_by(cell, NetworkDeepSpeed(stage=3, config=freed)) for cell in FREED}
    return weights


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Returns what the ranks of a stage return."""
    path = "tests.strategies.deepspeed.test_strategy.on_a_rank"
    return cache(lambda stage: ranks.run(path, tmp_path_factory.mktemp("deepspeed"), stage=stage))


@pytest.fixture(scope="module")
def trained_in_full(tmp_path_factory):
    """Returns the weights of the rest of the full product under a stage, on each rank."""

    def run(stage):
        folder, path = tmp_path_factory.mktemp("deepspeed"), "tests.strategies.deepspeed.test_strategy.weights_of"
        return ranks.run(path, folder, cells=supported(REST, stage), stage=stage)

    return cache(run)


@pytest.mark.parametrize(("stage", "cell"), pairs(COVERING), ids=str)
def test_two_ranks_train_the_weights_of_one_process(trained, stage, cell):
    for found in trained(stage):
        assert_trained_alike(found[str(cell)], cell)


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "cell"), pairs(REST), ids=str)
def test_so_they_do_in_the_full_product(trained_in_full, stage, cell):
    for found in trained_in_full(stage):
        assert_trained_alike(found[str(cell)], cell)


@pytest.mark.parametrize("cell", FREED, ids=str)
def test_weights_that_stage_3_frees_after_each_use_train_the_same(trained, cell):
    for found in trained(3):
        assert_trained_alike(found[f"freed {cell}"], cell)


@pytest.mark.parametrize("stage", SHARDED)
def test_optimizer_states_on_the_cpu_change_nothing(trained, stage):
    for found in trained(stage):
        assert_trained_alike(found["offloaded"], OFFLOADED)


@pytest.mark.parametrize("stage", STAGES)
def test_a_broken_wrapper_is_found(trained, stage):
    with pytest.raises(AssertionError, match=r"\d"):  # how far off the weights are
        assert_trained_alike(trained(stage)[0]["broken"], BROKEN)
