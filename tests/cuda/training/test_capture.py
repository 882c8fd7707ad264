"""What a CUDA graph of an iteration would freeze: operators are the same in each, and these numbers are not."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from lit_gans.callbacks import EMA
from tests.gans import GANS

FIRST, LAST = 3, 5  # iterations, counted from 1, after the optimizers have made their states
RATES, AVERAGE = {"_fused_adam_"}, {"_foreach_lerp_"}
DECAYS = ("cyclegan", "pix2pix", "r3gan", "sngan", "wgan_gp")  # their learning rates have a schedule
WEIGHTS = {"r3gan": {"mul"}}  # and so have the weights of its penalties


class Recorded(TorchDispatchMode):
    """Records the operators of each iteration with the shapes of their tensors, and apart from them the numbers."""

    def __init__(self):
        super().__init__()
        self.operators, self.numbers = [[]], [[]]  # before the first iteration

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        values, _ = tree_flatten((args, kwargs or {}))
        tensors = [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]
        self.operators[-1].append((str(func), tensors))
        self.numbers[-1].append([value for value in values if isinstance(value, float)])
        return func(*args, **(kwargs or {}))


class Loader:
    def __init__(self, batch, recorded):
        self.batch, self.recorded = batch, recorded

    def __len__(self):
        return LAST

    def __iter__(self):
        for _ in range(LAST):
            self.recorded.operators.append([])
            self.recorded.numbers.append([])
            yield self.batch


@pytest.mark.parametrize(
    "name", [each if each == "wgan_gp" else pytest.param(each, marks=pytest.mark.slow) for each in GANS]
)
def test_an_iteration_has_the_operators_of_the_one_before(tiny_gan, train, name):
    module, recorded = tiny_gan(name, n_critic=2), Recorded()
    images = torch.rand(8, 1, 16, 16) * 2 - 1
    with recorded:
        train(
            module, Loader({"image": images, "input": images}, recorded), torch.device("cpu"), LAST, callbacks=[EMA()]
        )
    compared = recorded.operators[FIRST:LAST]  # the last one ends the training
    assert len(compared[0]) > 50
    assert all(each == compared[0] for each in compared)
    one, other = recorded.numbers[FIRST : FIRST + 2]
    changed = {operator.split(".")[1] for (operator, _), a, b in zip(compared[0], one, other, strict=True) if a != b}
    assert changed == AVERAGE | (RATES if name in DECAYS else set()) | WEIGHTS.get(name, set())
