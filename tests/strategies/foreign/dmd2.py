"""The step of DMD2, whose trainer is a script of its own, as a LightningModule around its model.

The pretrained network, which would be downloaded and needs NVIDIA's code for EDM, is replaced by a small one.
"""

import io
import pickle
import sys
from types import ModuleType, SimpleNamespace
from unittest.mock import patch

import torch
from pytorch_lightning import LightningModule
from torch import nn

from lit_gans.strategies.base import backward_arguments

RATE_OF_SGD = 1e-7  # the loss of small noise has a weight of 250,000
SIGMA = 80.0  # of the noise that the generator starts from
ARGUMENTS = SimpleNamespace(
    **{"model_id": "", "sigma_data": 0.5, "sigma_min": 0.002, "sigma_max": SIGMA, "rho": 7.0},
    **{"num_train_timesteps": 1000, "min_step_percent": 0.02, "max_step_percent": 0.98},
    **{"gan_classifier": True, "diffusion_gan": True, "diffusion_gan_max_timestep": 1000, "initialie_generator": True},
)


class Denoiser(nn.Module):
    """A network with the arguments of EDM's."""

    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.map_augment = None
        self.begin, self.end = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(768, 3, 1)
        self.condition, self.bottleneck = nn.Linear(11, 8), nn.Conv2d(8, 768, 1)

    def forward(self, images, sigma, labels, return_bottleneck=False):
        condition = self.condition(torch.cat([sigma.reshape(-1, 1).log(), labels], dim=1))
        features = self.bottleneck(torch.tanh(self.begin(images) + condition[:, :, None, None]))
        return features if return_bottleneck else self.end(features)


def theirs():
    """Returns their model."""
    dnnlib, networks = ModuleType("dnnlib"), ModuleType("main.edm.edm_network")
    dnnlib.util = SimpleNamespace(open_url=lambda _: io.BytesIO(pickle.dumps({"ema": Denoiser()})))
    networks.get_edm_network = lambda _: Denoiser()
    with patch.dict(sys.modules, {"dnnlib": dnnlib, networks.__name__: networks}):
        from main.edm.edm_unified_model import EDMUniModel

        return EDMUniModel(ARGUMENTS, None)


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
