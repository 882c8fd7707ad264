"""A GAN on several processes with Lightning: `lightning_script.py STRATEGY`, `fabric`, or `fabric_unwrapped`.

A second argument plants a fault in the script of a strategy: `equal_batches`, `in_a_list` or `plain_backward`.
"""

import sys

import torch
from lightning.fabric import Fabric
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.nn.functional import softplus
from torch.utils.data import DataLoader, TensorDataset

import lit_gans.strategies  # noqa: F401 - registers names

NAME, PLANTED = [*sys.argv, ""][1:3]
DATA = torch.randn(96, 8, generator=torch.Generator().manual_seed(5))


def networks():
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
    return generator, nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))


class GAN(LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.generator, discriminator = networks()
        if PLANTED == "in_a_list":
            self.hidden = [discriminator]
        else:
            self.discriminator = discriminator

    def critic(self, images):
        return (self.hidden[0] if PLANTED == "in_a_list" else self.discriminator)(images)

    def configure_optimizers(self):
        discriminator = self.hidden[0] if PLANTED == "in_a_list" else self.discriminator
        return [torch.optim.Adam(network.parameters()) for network in (self.generator, discriminator)]

    def forward(self, real, latents, trains_generator):
        if trains_generator:
            return softplus(-self.critic(self.generator(latents))).mean()
        fake = self.generator(latents).detach()
        return softplus(-self.critic(real)).mean() + softplus(self.critic(fake)).mean()

    def training_step(self, batch, batch_idx):
        real, _ = batch
        torch.manual_seed(1000 * self.global_rank + batch_idx)
        latents = torch.randn(len(real), 4)
        for index, optimizer in reversed([*enumerate(self.optimizers())]):
            self.toggle_optimizer(optimizer)
            optimizer.zero_grad()
            loss = self(real, latents, index == 0)
            if PLANTED == "plain_backward" and index == 1:
                loss.backward()
            else:
                self.manual_backward(loss)
            optimizer.step()
            self.untoggle_optimizer(optimizer)


def with_fabric():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp_find_unused_parameters_true")
    fabric.launch()
    generator, discriminator = networks()
    generator, for_generator = fabric.setup(generator, torch.optim.Adam(generator.parameters()))
    for_discriminator = torch.optim.Adam(discriminator.parameters())
    if NAME == "fabric":
        discriminator, for_discriminator = fabric.setup(discriminator, for_discriminator)
    torch.manual_seed(fabric.global_rank)
    for real in fabric.setup_dataloaders(DataLoader(DATA, batch_size=8)):
        latents = torch.randn(len(real), 4)
        for_discriminator.zero_grad()
        fake = generator(latents).detach()
        both = discriminator(torch.cat([real, fake])).chunk(2)
        fabric.backward(softplus(-both[0]).mean() + softplus(both[1]).mean())
        for_discriminator.step()
        for_generator.zero_grad()
        discriminator.requires_grad_(False)
        fabric.backward(softplus(-discriminator(generator(latents))).mean())
        discriminator.requires_grad_(True)
        for_generator.step()


if NAME.startswith("fabric"):
    with_fabric()
else:
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    settings = quiet | {"use_distributed_sampler": PLANTED != "equal_batches", "limit_train_batches": 6}
    trainer = Trainer(accelerator="cpu", devices=2, strategy=NAME, max_epochs=1, **settings)
    trainer.fit(GAN(), DataLoader(TensorDataset(DATA, DATA), batch_size=8))
