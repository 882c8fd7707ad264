"""Somebody's own LightningModule with two networks, which knows nothing of this project, as the README shows it."""

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader

from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.strategies.deepspeed import NetworkDeepSpeed
from lit_gans.strategies.fsdp import NetworkFSDP

from . import ranks

STRATEGIES = {"ddp": NetworkDDP, "deepspeed": NetworkDeepSpeed, "fsdp": NetworkFSDP}


class Own(LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(0)
        self.generator = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))
        self.critic = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))

    def training_step(self, batch, batch_idx):
        real, latents = batch
        for_generator, for_critic = self.optimizers()
        fake = self.generator(latents)
        self.train_only(self.critic)
        self.manual_backward(softplus(-self.critic(real)).mean() + softplus(self.critic(fake.detach())).mean())
        for_critic.step()
        for_critic.zero_grad()
        self.train_only(self.generator)
        self.manual_backward(softplus(-self.critic(self.generator(latents))).mean())
        for_generator.step()
        for_generator.zero_grad()

    def train_only(self, network):
        self.requires_grad_(False)
        network.requires_grad_(True)

    def on_train_batch_end(self, *_):
        self.requires_grad_(True)

    def configure_optimizers(self):
        return [torch.optim.SGD(network.parameters(), 0.1) for network in (self.generator, self.critic)]

    def train_dataloader(self):
        generator = torch.Generator().manual_seed(1)
        batches = [(torch.randn(4, 4, generator=generator), torch.randn(4, 3, generator=generator)) for _ in range(6)]
        part = slice(self.global_rank, None, self.trainer.world_size)
        return DataLoader([(real[part], latents[part]) for real, latents in batches], batch_size=None)


def train(**arguments):
    module = Own()
    switches = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", use_distributed_sampler=False, **dict.fromkeys(switches, False), **arguments
    )
    trainer.fit(module)
    return module


def on_a_rank():
    weights = {}
    for name, strategy in STRATEGIES.items():
        module = train(devices=2, strategy=strategy())
        weights[name] = module.trainer.strategy.lightning_module_state_dict()
    return weights


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return ranks.run("tests.strategies.test_own_module.on_a_rank", tmp_path_factory.mktemp("own"))


@pytest.mark.filterwarnings("ignore:The total number of parameters")
@pytest.mark.parametrize("name", STRATEGIES)
def test_two_ranks_train_the_weights_of_one_process(trained, name):
    alone, start = train(devices=1).state_dict(), Own().state_dict()
    assert min((alone[key] - value).abs().max() for key, value in start.items()) > 1e-3
    for rank in trained:
        torch.testing.assert_close(rank[name], alone, rtol=0, atol=1e-6)
