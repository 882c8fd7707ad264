"""What the acceptance tests train: each example under each strategy, on one process or on several."""

from dataclasses import dataclass
from functools import cache, partial

from lit_gans.common.errors import RefusedInput
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from tests.strategies.cells import assert_near
from tests.strategies.ranks import quiet_trainer

from .autoencoder import Autoencoder
from .distillation import Distillation
from .example import STEPS
from .lightning_gan import LightningGAN
from .vocoder import Vocoder
from .wgan_gp import WGANGP

EXAMPLES = {cls.__name__: cls for cls in (LightningGAN, Vocoder, Autoencoder, Distillation, WGANGP)}
STRATEGIES = {
    "ddp": NetworkDDP,
    **{f"deepspeed stage={stage}": partial(NetworkDeepSpeed, stage=stage) for stage in (0, 1, 2, 3)},
    **{f"fsdp wrap={wrap}": partial(NetworkFSDP, wrap=wrap) for wrap in ("network", "layer")},
}
HYBRID = "fsdp hybrid=true"  # on four ranks of two nodes


@dataclass(frozen=True)
class Cell:
    """One training with SGD, or with Adam, which divides rounding by rounding and so is compared in float64."""

    example: str
    strategy: str
    accumulate: int = 1
    clip: float | None = None
    adam: bool = False

    def __str__(self):
        options = ["accumulate"] * (self.accumulate > 1) + ["clip"] * (self.clip is not None) + ["adam"] * self.adam
        return "-".join([self.example, self.strategy, *options])


PLAIN = [Cell(example, strategy) for example in EXAMPLES for strategy in STRATEGIES]
OPTIONS = [
    Cell(example, strategy, accumulate, clip)
    for example in EXAMPLES
    for strategy in STRATEGIES
    for accumulate, clip in ((1, 0.05), (2, None), (2, 0.05))
    if example != "Autoencoder" or accumulate == 1  # its weight is that of a full batch
]
# DeepSpeed has no float64
ADAM = [Cell(e, strategy, adam=True) for e in EXAMPLES for strategy in STRATEGIES if "deepspeed" not in strategy]


def train(cell, resume=None, **arguments):
    """Trains a cell for an epoch, or for another one from a checkpoint, and returns its module."""
    module = EXAMPLES[cell.example](accumulate=cell.accumulate, clip=cell.clip, adam=cell.adam)
    module = module.double() if cell.adam else module
    trainer = quiet_trainer(max_epochs=1 if resume is None else 2, **arguments)
    trainer.fit(module, ckpt_path=resume, weights_only=True)
    assert trainer.fit_loop.epoch_loop.batch_progress.current.completed == STEPS
    return module


def outcomes(cells, strategies=STRATEGIES, **arguments):
    """Returns for each cell the weights that a rank trains, or the sentence that refuses it."""
    found = {}
    for cell in cells:
        strategy = strategies[cell.strategy]()
        try:
            train(cell, strategy=strategy, **{"devices": 2, **arguments})
            found[cell] = {name: value.clone() for name, value in strategy.lightning_module_state_dict().items()}
        except RefusedInput as refused:
            found[cell] = str(refused)
    return found


@cache
def trained_alone(example, accumulate, clip, adam):
    """Returns the weights that one process trains."""
    return train(Cell(example, "", accumulate, clip, adam), devices=1).state_dict()


def assert_like_one_process(outcome, cell):
    """Compares weights with those that one process trains: equal names and dtypes, and within 1e-6."""
    alone = trained_alone(cell.example, cell.accumulate, cell.clip, cell.adam)
    assert not isinstance(outcome, str), outcome
    assert outcome.keys() == alone.keys()
    assert {name: value.dtype for name, value in outcome.items()} == {n: value.dtype for n, value in alone.items()}
    assert_near(outcome, alone)
