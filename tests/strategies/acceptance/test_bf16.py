"""precision=bf16-mixed: two ranks train the weights of one process, within the rounding of bfloat16.

The strategies need not agree with each other within the 1e-6 of float32: a comparison found 9.4e-5 in the vocoder.
"""

import pytest

from tests.strategies import ranks

from .cells import EXAMPLES, STRATEGIES, Cell, train

NAMES = ("ddp", "deepspeed stage=2", "fsdp wrap=network")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:The total number of parameters", "ignore:Found .* in eval mode"),
]


def on_a_rank():
    """Returns the weights of each example, of one process, and of two under each strategy."""
    found = {}
    for example in EXAMPLES:
        for name in NAMES:
            strategy = STRATEGIES[name]()
            train(Cell(example, name), strategy=strategy, devices=2, precision="bf16-mixed")
            found[example, name] = {key: value.clone() for key, value in strategy.lightning_module_state_dict().items()}
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return ranks.run(f"{__name__}.on_a_rank", tmp_path_factory.mktemp("bf16"))


def largest_difference(one, other):
    assert {key: value.dtype for key, value in one.items()} == {key: value.dtype for key, value in other.items()}
    return max((one[key].double() - other[key].double()).abs().max().item() for key in one)


@pytest.mark.parametrize("example", EXAMPLES)
def test_two_ranks_train_like_one_process_but_for_rounding(found, example):
    alone = train(Cell(example, ""), devices=1, precision="bf16-mixed").state_dict()
    moved = largest_difference(alone, EXAMPLES[example]().state_dict())
    for rank in found:
        for name in NAMES:
            share = largest_difference(rank[example, name], alone) / moved
            print(f"{example} under {name}: {share:.2%} of the largest change")
            assert 0 < share <= 0.01
