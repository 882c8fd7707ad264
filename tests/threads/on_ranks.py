"""What the rows that need two ranks train, in one run of both."""

from torch import nn

from tests.strategies.acceptance.cells import EXAMPLES, STRATEGIES, Cell, outcomes
from tests.strategies.own_modules import Own
from tests.strategies.test_own_module import train

from . import stock

PARITY = {  # by row: modules as their users write them, and the strategies of the complaint
    1: [Cell("LightningGAN", "ddp")],
    2: [Cell("LightningGAN", "fsdp wrap=network")],
    4: [Cell("LightningGAN", "deepspeed stage=2"), Cell("LightningGAN", "deepspeed stage=3")],
    5: [Cell("Distillation", "deepspeed stage=2")],
    15: [Cell("WGANGP", "ddp")],
    16: [Cell("WGANGP", "fsdp wrap=network")],
    18: [Cell("Autoencoder", "fsdp wrap=network")],  # its discriminator starts late
    21: [Cell("Vocoder", "ddp")],
    22: [Cell("Vocoder", "ddp", accumulate=2)],
}


class BatchNorm(Own):
    """Two forwards of a network with batch norm before one backward."""

    def __init__(self):
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1))


def find(rows):
    """Returns by row what a rank found."""
    found = {f"parity {row}": outcomes(PARITY[row]) for row in rows}
    module = EXAMPLES["LightningGAN"]()
    engines = []
    module.on_train_start = lambda: engines.extend(module.trainer.strategy.engines)
    train(lambda: module, devices=2, strategy=STRATEGIES["deepspeed stage=2"]())
    found["engines"] = engines
    module = train(BatchNorm, devices=2, strategy=STRATEGIES["ddp"]())
    found["batch norm"] = {name: value.clone() for name, value in module.state_dict().items()}
    return found | {"stock": stock.find()}
