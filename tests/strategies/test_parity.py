"""Every GAN under every strategy: two ranks train the weights of one process with the full batch.

By default one GAN under every strategy; with `pytest -m ranks` each shape of the loop under every strategy, and every
GAN under one strategy of each kind, each time with other settings; all of them with `pytest -m slow`.
"""

import re
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from unittest.mock import patch

import pytest
import torch
from lightning.pytorch.callbacks import LambdaCallback
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.distributed.fsdp import FSDPModule

from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from tests.gans import GANS

from . import cells as tiny
from . import ranks
from .cells import LOOPS, Cell, assert_trained_alike, build, half, many_images, matrix, train, trained_alone
from .matrix import COLUMNS

pytestmark = pytest.mark.filterwarnings("ignore:Found .* in eval mode")

# every registered strategy, by short names such as deepspeed_0 and fsdp_layer
STRATEGIES = {re.sub(r" \w+=", "_", title): make for title, make in COLUMNS.items()}
THOROUGH = ("ddp", "deepspeed_2", "deepspeed_3", "fsdp_layer")
PENALIZED = {name for name in GANS if build(Cell(name)).penalized_networks}
ADAM = {"optimizer": "adam", "precision": "64-true"}
ALL = [*matrix(), *map(half, GANS), *(cell for cell in matrix(**ADAM) if cell.accumulate == 2 or not cell.clip)]
KINDS = (Cell, partial(Cell, accumulate=2, clip=0.05), half, partial(Cell, accumulate=2, clip=0.05, **ADAM))


def supported(name, cell):
    """Stage 3 refuses a gradient penalty (see `test_refusals`), and DeepSpeed has no float64."""
    deepspeed = name.startswith("deepspeed")
    return not (deepspeed and cell.precision == "64-true") and not (name == "deepspeed_3" and cell.gan in PENALIZED)


def pairs(name, cells):
    return [(name, cell) for cell in dict.fromkeys(cells) if supported(name, cell)]


def in_turn(name):
    """Every GAN with one kind of settings that a strategy supports: another one under each strategy."""
    for row, gan in enumerate(GANS, THOROUGH.index(name)):
        cells = [kind(gan) for kind in KINDS[row % 4 :] + KINDS[: row % 4]]
        yield next((cell for cell in cells if supported(name, cell)), cells[0])


def once(name):
    """Every GAN whose shape of the loop another one has, under one strategy."""
    others = [gan for gan in GANS if gan not in LOOPS]
    ours = {gan for row, gan in enumerate(others) if name == ("ddp", "fsdp_layer", "deepspeed_2")[row % 3]}
    return [cell for cell in in_turn(name) if cell.gan in ours] if ours else []


SIGNS = Cell("autoencoder_kl:lfq")  # whose entropy depends on all images of a batch
VARIANTS = (Cell("autoencoder_kl:vq"), Cell("autoencoder_kl:decoder"), SIGNS, replace(SIGNS, **ADAM))
SHAPES = [pair for name in STRATEGIES for pair in pairs(name, [*map(Cell, LOOPS), *once(name)])]
FIRST = [(name, cell) for name, cell in SHAPES if cell == Cell("dcgan")]
OTHERS = [pair for name in THOROUGH for pair in pairs(name, [*in_turn(name), *VARIANTS])]
TURNS = [pair for pair in dict.fromkeys(SHAPES + OTHERS) if pair not in FIRST]
REST = [pair for name in STRATEGIES for pair in pairs(name, ALL) if pair not in FIRST + TURNS]

PLAIN, CLIPPED = Cell("dcgan"), Cell("d2gan", accumulate=2, clip=0.05)
FREED = partial(NetworkDeepSpeed, stage=3, config={"zero_optimization": {"stage3_param_persistence_threshold": 0}})
OTHERWISE = [  # settings that must not change the weights
    *((f"deepspeed_{n}", partial(NetworkDeepSpeed, stage=n, offload_optimizer=True), CLIPPED) for n in (2, 3)),
    *(("deepspeed_3", FREED, cell) for cell in (Cell("sngan"), CLIPPED)),  # else small layers stay unsharded
]


@contextmanager
def as_float32(cell, strategy):
    """Gives FSDP, which refuses float64, the cell to train for one in float32 whose module brings float64."""

    def in_float64(cell):
        module = build(cell).double()
        torch.set_default_dtype(torch.float64)  # after the first weights, which are drawn in float32
        return module

    if not (isinstance(strategy, NetworkFSDP) and cell.precision == "64-true"):
        yield cell
        return
    try:
        with patch.object(tiny, "build", in_float64):
            yield replace(cell, precision="32-true")
    finally:
        torch.set_default_dtype(torch.float32)


def trained_by(strategy, cell, **arguments):
    """Trains a cell and returns copies of its weights."""
    with as_float32(cell, strategy) as named:
        train(named, many_images(), world_size=2, strategy=strategy, **arguments)
    return {name: value.clone() for name, value in strategy.lightning_module_state_dict().items()}


def weights_of(name, cells):
    return {cell: trained_by(STRATEGIES[name](), cell) for cell in cells}


def with_other_settings(name):
    return [trained_by(make(), cell) for under, make, cell in OTHERWISE if under == name]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs two ranks once for each strategy and tier."""

    @cache
    def run(name, tier):
        cells = [cell for under, cell in TIERS[tier] if under == name]
        return ranks.run(f"{__name__}.weights_of", tmp_path_factory.mktemp(name), name=name, cells=cells)

    return run


TIERS = {"default": FIRST, "ranks": TURNS, "slow": REST}
MARKS = {"default": (), "ranks": pytest.mark.ranks, "slow": pytest.mark.slow}
CELLS = [pytest.param(tier, *pair, marks=MARKS[tier]) for tier, pairs in TIERS.items() for pair in pairs]


@pytest.mark.parametrize(("tier", "name", "cell"), CELLS, ids=str)
def test_two_ranks_train_the_weights_of_one_process(trained, tier, name, cell):
    for weights in trained(name, tier):
        assert_trained_alike(weights[cell], cell)
        if cell.precision == "64-true":
            floats = {value.dtype for value in weights[cell].values() if value.is_floating_point()}
            assert floats == {torch.float64}


@pytest.mark.ranks
def test_the_weights_move():
    for cell in dict.fromkeys(cell for _, cell in FIRST + TURNS):
        start, alone = build(cell).state_dict(), trained_alone(cell)
        floats = {name: value for name, value in start.items() if value.is_floating_point()}
        assert (
            max((alone[name] - value).abs().max() for name, value in floats.items()) > 3e-4
        )  # the comparisons allow 1e-6


@pytest.mark.ranks
@pytest.mark.parametrize("name", dict.fromkeys(name for name, *_ in OTHERWISE))
def test_offloaded_states_and_weights_that_are_freed_after_each_use_change_nothing(tmp_path, name):
    cells = [cell for under, _, cell in OTHERWISE if under == name]
    for otherwise in ranks.run(f"{__name__}.with_other_settings", tmp_path, name=name):
        for weights, cell in zip(otherwise, cells, strict=True):
            assert_trained_alike(weights, cell)


# ---- how the networks are wrapped

HOOKS = {
    "none": ({"bucket_cap_mb": 0.5}, []),
    "fp16": ({"gradient_compression": "fp16", "bucket_cap_mb": 2}, [("fp16_compress_hook", None)]),
    "bf16": ({"gradient_compression": "bf16"}, [("bf16_compress_hook", None)]),
    "powersgd": ({"gradient_compression": "powersgd", "powersgd_rank": 3}, [("_powersgd", 3)]),
    "hierarchical": ({"hierarchical": True}, [("_hierarchical", None)]),
}


def replicas_of(options):
    """Returns what DDP says of each network's replica while it trains."""
    found = {}

    def look(trainer, *_):
        for name, replica in trainer.strategy.replicas.items():
            hooks = [
                (hook.__qualname__, state.matrix_approximation_rank if isinstance(state, PowerSGDState) else None)
                for hook, state in replica._comm_hooks
            ]
            logged = replica._get_ddp_logging_data()
            found[name] = hooks, logged["bucket_cap_bytes"], logged["gradient_as_bucket_view"]

    trained_by(NetworkDDP(**options), Cell("d2gan"), callbacks=[LambdaCallback(on_train_batch_start=look)])
    return found


def wrapped():
    """Returns the replicas of DDP by their options, and by FSDP's `wrap` how much of each parameter a rank holds and
    into how many pieces each network is wrapped.
    """
    replicas = {name: replicas_of(options) for name, (options, _) in HOOKS.items()}
    shards, pieces = {}, {}
    for wrap in ("network", "layer"):
        for gan in LOOPS:
            trained_by(strategy := NetworkFSDP(wrap=wrap), Cell(gan))
            module = strategy.lightning_module
            shards[wrap, gan] = {name: value.to_local().numel() for name, value in module.named_parameters()}
            pieces[wrap, gan] = {
                name: sum(isinstance(layer, FSDPModule) for layer in getattr(module, name).modules())
                for name in module.network_names
            }
    return replicas, shards, pieces


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return ranks.run(f"{__name__}.wrapped", tmp_path_factory.mktemp("wrapped"))


@pytest.mark.ranks
@pytest.mark.parametrize("name", HOOKS)
def test_the_options_reach_the_replica_of_each_network(found, name):
    options, expected = HOOKS[name]
    for replicas, _, _ in found:
        assert replicas[name].keys() == {"generator", "discriminator_1", "discriminator_2"}
        for hooks, bucket, views in replicas[name].values():
            assert hooks == expected
            assert bucket == options.get("bucket_cap_mb", 25) * 2**20
            assert views, "no second copy of the gradients"


@pytest.mark.ranks
@pytest.mark.parametrize("gan", LOOPS)
@pytest.mark.parametrize("wrap", ["network", "layer"])
def test_fsdp_shards_each_layer_where_it_may_and_each_rank_holds_its_shard_only(found, wrap, gan):
    """A penalized network is one piece: sharded separately, its layers would be reduced before the gradients of the
    penalty exist.
    """
    module = build(Cell(gan))
    for _, _, pieces in found:
        for name, num in pieces[wrap, gan].items():
            assert (num == 1) == (wrap == "network" or name in module.penalized_networks)
    for name, parameter in module.named_parameters():  # sharded along the first axis, rounded up to full rows
        rows, num = parameter.shape[0], parameter.numel()
        held = [shards[wrap, gan][name] for _, shards, _ in found]
        assert sum(held) == num
        assert max(held) <= (rows + 1) // 2 * (num // rows)


HYBRID = [Cell("d2gan"), Cell("wgan_gp")]


def on_a_rank_of_two_nodes():
    """Returns the weights of each cell, and how much of the generator a rank held."""
    weights, held = {}, []
    for cell in HYBRID:
        strategy = NetworkFSDP(hybrid=True)
        module = train(cell, many_images(), world_size=4, num_nodes=2, strategy=strategy)
        weights[cell] = strategy.lightning_module_state_dict()
        held.append(sum(parameter.to_local().numel() for parameter in module.generator.parameters()))
    return weights, held


@pytest.mark.ranks
def test_shards_within_a_node_and_replicas_across_nodes_train_the_same(tmp_path):
    found = ranks.run(f"{__name__}.on_a_rank_of_two_nodes", tmp_path, 4, node_size=2)
    for index, cell in enumerate(HYBRID):
        full = sum(parameter.numel() for parameter in build(cell).generator.parameters())
        held = [held[index] for _, held in found]
        assert held[0] + held[1] == held[2] + held[3] == full
        for weights, _ in found:
            assert_trained_alike(weights[cell], cell)
