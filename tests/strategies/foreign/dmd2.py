"""The step of DMD2, whose trainer is a script of its own, as a LightningModule around its model.

`edm.py` replaces the pretrained network by a small network.
"""

import sys
from types import SimpleNamespace
from unittest.mock import patch

import torch
from pytorch_lightning import LightningModule

from lit_gans.strategies.base import backward_arguments

from .edm import ARGUMENTS, replaced_modules

RATE_OF_SGD = 1e-7  # the loss of small noise has a weight of 250,000
SIGMA = ARGUMENTS["sigma_max"]  # standard deviation of the noise that the generator starts from


def theirs():
    """Returns their model."""
    with patch.dict(sys.modules, replaced_modules()):
        from main.edm.edm_unified_model import EDMUniModel

        return EDMUniModel(SimpleNamespace(**ARGUMENTS), None)


class Ported(LightningModule):
    def __init__(self, model):
        super().__init__()
        self.automatic_optimization = False
        self.model = model

    def training_step(self, batch, batch_idx):
        for_generator, for_guidance = self.optimizers()
        images, labels, noise = batch
        inputs = (noise * SIGMA, torch.full((len(noise),), SIGMA).to(noise), labels)
        real, trains = {"real_image": images, "real_label": labels}, batch_idx % 2 == 0

        losses, found = self.model(
            *inputs, real_train_dict=real, compute_generator_gradient=trains, generator_turn=True
        )
        if trains:
            loss = losses["loss_dm"] + 3e-3 * losses["gen_cls_loss"]
            self.manual_backward(loss, **backward_arguments(self.trainer.strategy, "model.feedforward_model"))
            for_generator.step()
            for_generator.zero_grad()

        losses, _ = self.model(*inputs, guidance_turn=True, guidance_data_dict=found["guidance_data_dict"])
        loss = losses["loss_fake_mean"] + 0.01 * losses["guidance_cls_loss"]
        self.manual_backward(loss, **backward_arguments(self.trainer.strategy, "model.guidance_model"))
        for_guidance.step()
        for_guidance.zero_grad()

    def configure_optimizers(self):
        networks = (self.model.feedforward_model, self.model.guidance_model)
        trained = [[each for each in network.parameters() if each.requires_grad] for network in networks]
        return [torch.optim.AdamW(parameters, 1e-3, betas=(0.9, 0.999)) for parameters in trained]


def module():
    return Ported(theirs())


def batches(generator):
    labels = torch.eye(10)[:4]
    return [
        (torch.rand(4, 3, 8, 8, generator=generator) * 2 - 1, labels, torch.randn(4, 3, 8, 8, generator=generator))
        for _ in range(3)
    ]
