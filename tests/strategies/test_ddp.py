"""NetworkDDP on two processes against one process with the full batch."""

import pytest
from lightning.pytorch.callbacks import LambdaCallback
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState

from lit_gans.strategies.ddp import NetworkDDP
from tests.gans import GANS

from . import ranks
from .broken import ArmedTooEarly, NotArmed
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
    trained_alone,
    without,
)

pytestmark = pytest.mark.filterwarnings("ignore:Found .* in eval mode")

ADAM = {"optimizer": "adam", "precision": "64-true"}
CELLS = [*covering(), *(Cell(gan, 2, 0.05, **ADAM) for gan in LOOPS), *map(half, LOOPS)]
REST = without([*matrix(), *matrix(**ADAM), *map(half, GANS)], CELLS)

# where a step has several backwards of a network: torch is silent, and reduces in the first of them
SEVERAL_BACKWARDS = [Cell("dcgan", accumulate=2), Cell("wgan_gp")]
BROKEN = [
    *((NotArmed, cell) for cell in (Cell("dcgan"), half("dcgan"))),
    *((ArmedTooEarly, cell) for cell in SEVERAL_BACKWARDS),
]

OPTIONS = {
    "none": {"bucket_cap_mb": 0.5},
    "fp16": {"gradient_compression": "fp16", "bucket_cap_mb": 2},
    "bf16": {"gradient_compression": "bf16"},
    "powersgd": {"gradient_compression": "powersgd", "powersgd_rank": 3},
    "hierarchical": {"hierarchical": True},
}
HOOKS = {
    "none": [],
    "fp16": [("fp16_compress_hook", None)],
    "bf16": [("bf16_compress_hook", None)],
    "powersgd": [("_powersgd", 3)],
    "hierarchical": [("_hierarchical", None)],
}
MANY_NETWORKS = Cell("d2gan")


def options_of_replicas(options):
    """Trains and returns what DDP says of each network's replica while it trains."""
    found = {}

    def look(trainer, *_):
        for name, replica in trainer.strategy.replicas.items():
            hooks = [
                (hook.__qualname__, state.matrix_approximation_rank if isinstance(state, PowerSGDState) else None)
                for hook, state in replica._comm_hooks
            ]
            logged = replica._get_ddp_logging_data()
            found[name] = hooks, logged["bucket_cap_bytes"], logged["gradient_as_bucket_view"]

    strategy = NetworkDDP(**options)
    train(
        MANY_NETWORKS,
        many_images(),
        world_size=2,
        strategy=strategy,
        callbacks=[LambdaCallback(on_train_batch_start=look)],
    )
    return found


def weights_of(cells):
    """Returns the weights of each cell."""
    weights = {}
    for cell in cells:
        module = train(cell, many_images(), world_size=2, strategy=NetworkDDP())
        weights[str(cell)] = {name: value.clone() for name, value in module.state_dict().items()}
    return weights


def on_a_rank():
    """Returns the weights of each cell, those of broken wrappers, and the options of each replica."""
    broken = {
        (strategy.__name__, cell): train(cell, many_images(), world_size=2, strategy=strategy()).state_dict()
        for strategy, cell in BROKEN
    }
    return weights_of(CELLS), broken, {name: options_of_replicas(options) for name, options in OPTIONS.items()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return ranks.run("tests.strategies.test_ddp.on_a_rank", tmp_path_factory.mktemp("ddp"))


@pytest.fixture(scope="module")
def trained_in_full(tmp_path_factory):
    return ranks.run("tests.strategies.test_ddp.weights_of", tmp_path_factory.mktemp("ddp"), cells=REST)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_two_ranks_train_the_weights_of_one_process(trained, cell):
    for weights, _, _ in trained:
        assert_trained_alike(weights[str(cell)], cell)


@pytest.mark.slow
@pytest.mark.parametrize("cell", REST, ids=str)
def test_so_they_do_in_the_full_product(trained_in_full, cell):
    for weights in trained_in_full:
        assert_trained_alike(weights[str(cell)], cell)


def test_the_weights_move():
    for cell in CELLS:
        start, alone = build(cell).state_dict(), trained_alone(cell)
        floats = {name: value for name, value in start.items() if value.is_floating_point()}
        assert max((alone[name] - value).abs().max() for name, value in floats.items()) > 1e-3


@pytest.mark.parametrize(
    ("strategy", "cell"), BROKEN, ids=lambda thing: thing.__name__ if isinstance(thing, type) else str(thing)
)
def test_a_broken_wrapper_is_found(trained, strategy, cell):
    with pytest.raises(AssertionError, match=r"\d"):  # how far off the weights are
        assert_trained_alike(trained[0][1][strategy.__name__, cell], cell)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_options_reach_the_replica_of_each_network(trained, name):
    mebibytes = OPTIONS[name].get("bucket_cap_mb", 25)
    for _, _, options in trained:
        assert options[name].keys() == {"generator", "discriminator_1", "discriminator_2"}
        for hooks, bucket, views in options[name].values():
            assert hooks == HOOKS[name]
            assert bucket == mebibytes * 2**20
            assert views, "no second copy of the gradients"
