"""Modules as their users write them train under every strategy like on one process, or are refused with a sentence."""

from functools import cache
from pathlib import Path

import pytest

from lit_gans.strategies.fsdp import NetworkFSDP
from tests.strategies import ranks

from .cells import (
    ADAM,
    EXAMPLES,
    HYBRID,
    OPTIONS,
    PLAIN,
    STRATEGIES,
    Cell,
    assert_like_one_process,
    outcomes,
    train,
    trained_alone,
)

GUIDE = Path(__file__).parents[3] / "docs/guides/distributed.md"
COLUMNS = [*STRATEGIES, HYBRID]
FREED = "ZeRO stage 3 frees the weights of {} before the gradient penalty"
REFUSED = {
    Cell("WGANGP", "deepspeed stage=3"): FREED.format("critic"),
    Cell("Autoencoder", "deepspeed stage=3"): FREED.format("decoder"),
}
FIRST = [  # beside those that tests/threads trains
    *(Cell(example, "ddp") for example in ("Autoencoder", "Distillation")),
    *(Cell(example, "fsdp wrap=layer") for example in ("Autoencoder", "Distillation", "WGANGP")),
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


@cache
def written():
    """Returns what the table of the guide says of each example under each strategy."""
    text = GUIDE.read_text().partition("<!-- examples -->\n")[2].partition("<!-- end of examples -->")[0]
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    return {
        Cell(example, strategy): entry
        for example, (_, *entries) in zip(EXAMPLES, rows, strict=False)
        for strategy, entry in zip(COLUMNS, entries, strict=True)
    }


def check(outcome, cell):
    sentence = REFUSED.get(Cell(cell.example, cell.strategy))
    if cell.example == "WGANGP" and "fsdp" in cell.strategy and cell.accumulate > 1:
        sentence = "a backward pass of generator inside block_backward_sync reaches critic, which requires gradients"
    if cell in written():
        assert written()[cell].startswith("refused" if sentence else "✓")
    if sentence is None:
        assert_like_one_process(outcome, cell)
    else:
        assert sentence in outcome


@pytest.mark.ranks
@pytest.mark.parametrize("cell", FIRST, ids=str)
def test_two_ranks_train_like_one_process(found, cell):
    for rank in found:
        check(rank[cell], cell)


@pytest.mark.slow
@pytest.mark.parametrize("cell", REST, ids=str)
def test_two_ranks_with_every_option_train_like_one_process(found_in_full, cell):
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


BF16 = [cell for cell in PLAIN if cell.strategy in ("ddp", "deepspeed stage=2", "fsdp wrap=network")]


@pytest.mark.slow
def test_bfloat16_differs_from_one_process_by_its_rounding(tmp_path):
    """The strategies need not agree within the 1e-6 of float32: 9.4e-5 was seen in the vocoder."""
    place, autocast = "tests.strategies.acceptance.cells.outcomes", "bf16-mixed"
    for rank in ranks.run(place, tmp_path, cells=BF16, precision=autocast):
        for cell, found in rank.items():
            alone, start = (
                train(cell, devices=1, precision=autocast).state_dict(),
                EXAMPLES[cell.example]().state_dict(),
            )
            assert {name: value.dtype for name, value in found.items()} == {n: v.dtype for n, v in alone.items()}
            off, moved = (max((one[n] - alone[n]).abs().max() for n in alone) for one in (found, start))
            print(f"{cell}: {off / moved:.2%} of the largest change")
            assert 0 < off <= moved / 100
