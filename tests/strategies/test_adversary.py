"""A module with an `Adversary` trains the same weights on two ranks as on a single process, under every strategy."""

from functools import partial

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader

from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed.strategy import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP
from lit_gans.training.adaptive_weight import record_layer
from lit_gans.training.adversary import Adversary
from lit_gans.training.augmentation import Adaptive

from . import ranks

STRATEGIES = {
    "ddp": NetworkDDP,
    "deepspeed_2": partial(NetworkDeepSpeed, stage=2),
    "fsdp_network": NetworkFSDP,
    "fsdp_layer": partial(NetworkFSDP, wrap="layer"),
}


class Denoiser(LightningModule):
    penalized_networks = ("adversary",)

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(3, 4, 3, 1, 1), nn.Conv2d(4, 3, 3, 1, 1)
        self.network = nn.Sequential(self.first, nn.Tanh(), self.last)
        critic = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.Tanh(), nn.Conv2d(4, 1, 3))
        options = {"weight": 0.5, "gradient_penalty": 1.0, "lecam": 0.1, "diffaugment": ("color", "translation")}
        self.adversary = Adversary(critic, start=1, augmentation=Adaptive(target=-0.9, over=40), **options)

    def on_train_start(self):
        torch.manual_seed(3)  # the same seed on every rank, whatever Lightning has drawn or seeded before

    def training_step(self, images, batch_idx):
        for_network, for_adversary = self.optimizers()
        with record_layer(self.last) as last:
            output = self.network(images + 0.1)
        reconstruction = functional.mse_loss(output, images)
        term = self.adversary.loss(output, iteration=batch_idx, reconstruction=reconstruction, last_layer=last)
        self.manual_backward(reconstruction + term)
        for_network.step()
        for_network.zero_grad()
        self.adversary.step(images, output, for_adversary, iteration=batch_idx, backward=self.manual_backward)

    def configure_optimizers(self):
        return [torch.optim.SGD(network.parameters(), 0.1) for network in (self.network, self.adversary)]

    def train_dataloader(self):
        batches = torch.randn(5, 4, 3, 8, 8, generator=torch.Generator().manual_seed(1))
        return DataLoader(batches.chunk(self.trainer.world_size, 1)[self.global_rank], batch_size=None)


def train(**arguments):
    module = Denoiser()
    trainer = ranks.quiet_trainer(max_epochs=1, **arguments)
    trainer.fit(module)
    return module


def on_a_rank(where):
    weights = {}
    for name, strategy in STRATEGIES.items():
        weights[name] = train(devices=2, strategy=strategy()).trainer.strategy.lightning_module_state_dict()
    return weights


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adversary")
    return ranks.run("tests.strategies.test_adversary.on_a_rank", folder, where=folder)


@pytest.mark.ranks
@pytest.mark.filterwarnings("ignore:The total number of parameters")
@pytest.mark.parametrize("name", STRATEGIES)
def test_two_ranks_train_the_weights_of_one_process(trained, name):
    alone, start = train(devices=1).state_dict(), Denoiser().state_dict()
    moved = {key: (alone[key] - start[key]).abs().max() for key in start}
    probability, _, num_scores = alone["adversary.augmentation_state"]
    assert (probability, num_scores) == (pytest.approx(0.4), 16), "changed before the last iteration"
    assert min(moved[key] for key in ("network.0.weight", "adversary.discriminators.0.0.weight")) > 1e-4
    for weights in trained:
        torch.testing.assert_close(weights[name], alone, rtol=0, atol=2e-6)
