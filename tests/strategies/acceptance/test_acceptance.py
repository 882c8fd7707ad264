"""Modules as their users write them train under every strategy like on one process, or are refused with a sentence."""

import pytest

from lit_gans.strategies.fsdp import NetworkFSDP
from tests.strategies import ranks
from tests.threads.on_ranks import PARITY

from .cells import ADAM, EXAMPLES, HYBRID, OPTIONS, PLAIN, Cell, assert_like_one_process, outcomes, trained_alone
from .table import written

FREED = "ZeRO stage 3 frees the weights of {} before its gradient penalty"
REFUSED = {
    Cell("WGANGP", "deepspeed stage=3"): FREED.format("critic"),
    Cell("Autoencoder", "deepspeed stage=3"): FREED.format("decoder"),
}
BY_THREAD = {cell for cells in PARITY.values() for cell in cells}  # which tests/threads trains by default
FIRST = [
    *(cell for cell in PLAIN if cell.strategy in ("ddp", "fsdp wrap=layer") and cell not in BY_THREAD),
    *(Cell(example, "deepspeed stage=3") for example in ("Vocoder", "Distillation", "WGANGP")),
    Cell("Autoencoder", "deepspeed stage=2"),
    Cell("Vocoder", "fsdp wrap=layer", 2, 0.05),
    Cell("Distillation", "deepspeed stage=2", 2, 0.05),
]
REST = [cell for cell in (*PLAIN, *OPTIONS, *ADAM) if cell not in FIRST]

pytestmark = pytest.mark.filterwarnings("ignore:The total number of parameters", "ignore:Found .* in eval mode")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("acceptance")
    return ranks.run("tests.strategies.acceptance.cells.outcomes", folder, cells=FIRST)


@pytest.fixture(scope="module")
def found_in_full(tmp_path_factory):
    folder = tmp_path_factory.mktemp("acceptance")
    return ranks.run("tests.strategies.acceptance.cells.outcomes", folder, cells=REST)


def check(outcome, cell):
    sentence = REFUSED.get(Cell(cell.example, cell.strategy))
    if cell.example == "WGANGP" and "fsdp" in cell.strategy and cell.accumulate > 1:
        sentence = "a backward of generator inside block_backward_sync reaches critic, which requires gradients"
    if sentence is None:
        assert_like_one_process(outcome, cell)
    else:
        assert sentence in outcome


@pytest.mark.parametrize("cell", FIRST, ids=str)
def test_two_ranks_train_like_one_process(found, cell):
    for rank in found:
        check(rank[cell], cell)


def test_the_guide_has_the_table_of_what_ran(found):
    entries = written()
    for cell in (cell for cell in FIRST if cell in PLAIN):
        refused = isinstance(found[0][cell], str)
        assert entries[cell.example, cell.strategy].startswith("refused" if refused else "equal")


@pytest.mark.slow
@pytest.mark.parametrize("cell", REST, ids=str)
def test_so_they_do_with_every_option(found_in_full, cell):
    for rank in found_in_full:
        check(rank[cell], cell)


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_network_moves_and_what_is_frozen_does_not(example):
    module, alone = EXAMPLES[example](), trained_alone(example, 1, None, False)
    for name, parameter in module.named_parameters():
        moved = (alone[name] - parameter).abs().max()
        if not parameter.requires_grad and "ema_model" not in name:
            assert moved == 0, name
        elif parameter.dim() > 1:
            assert moved > 1e-5, name


def hybrid(cells):
    strategies = {HYBRID: lambda: NetworkFSDP(hybrid=True)}
    return outcomes(cells, strategies, num_nodes=2)


@pytest.mark.slow
def test_shards_within_a_node_and_replicas_across_nodes(tmp_path):
    cells = [Cell(example, HYBRID) for example in EXAMPLES]
    for rank in ranks.run(f"{__name__}.hybrid", tmp_path, 4, node_size=2, cells=cells):
        for cell in cells:
            check(rank[cell], cell)
