"""A KL autoencoder: encoder and decoder in one optimizer, together with a log variance of the loss; inside that loss a
frozen perceptual network and a discriminator, which starts late and whose weight follows the gradients of the last
layer.
"""

import torch
from torch import nn
from torch.nn.functional import relu

from .example import Example

STARTS_AT = 2


class Loss(nn.Module):
    """Reconstruction, perceptual and adversarial loss."""

    def __init__(self):
        super().__init__()
        self.logvar = nn.Parameter(torch.zeros(1))
        self.perceptual = nn.Conv2d(1, 3, 3).double().requires_grad_(False)  # in a precision of its own
        self.discriminator = nn.Sequential(nn.Conv2d(1, 4, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(4, 1, 4))

    def forward(self, images, reconstructions):
        seen = [self.perceptual(each.double()) for each in (images, reconstructions)]
        distance = (images - reconstructions).abs().mean() + (seen[0] - seen[1]).square().mean().to(images.dtype)
        return (distance / self.logvar.exp() + self.logvar).sum()


class Autoencoder(Example):
    penalized_networks = ("decoder",)  # FSDP: the gradient of its last layer is taken before the backward

    def build(self):
        self.encoder = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.SiLU(), nn.Conv2d(4, 4, 3, 1, 1))
        self.quant_conv = nn.Conv2d(4, 4, 1)
        self.decoder = nn.Sequential(nn.Conv2d(2, 4, 3, 1, 1), nn.SiLU(), nn.ConvTranspose2d(4, 1, 4, 2, 1))
        self.loss = Loss()

    def training_step(self, batch, batch_idx):
        optimizer_ae, optimizer_d = self.optimizers()
        images, noise = batch
        adversarial = batch_idx >= STARTS_AT

        self.toggle_optimizer(optimizer_ae)
        mean, log_variance = self.quant_conv(self.encoder(images)).chunk(2, dim=1)
        reconstructions = self.decoder(mean + (log_variance / 2).exp() * noise)
        loss = self.loss(images, reconstructions)
        if adversarial:
            score = -self.loss.discriminator(reconstructions).mean()
            loss = loss + self.adaptive_weight(loss, score) * score
        kl = (mean.square() + log_variance.exp() - 1 - log_variance).mean() / 2
        self.manual_backward(loss + 0.1 * kl)
        self.step(optimizer_ae)
        self.untoggle_optimizer(optimizer_ae)

        if adversarial:
            self.toggle_optimizer(optimizer_d)
            real, fake = (self.loss.discriminator(each) for each in (images, reconstructions.detach()))
            self.manual_backward(relu(1 - real).mean() + relu(1 + fake).mean())
            self.step(optimizer_d)
            self.untoggle_optimizer(optimizer_d)

    def adaptive_weight(self, reconstruction, score):
        """Returns the ratio of both gradients at the last layer, of the batch of all ranks."""
        last = self.decoder[-1].weight
        norms = []
        for loss in (reconstruction, score):
            (gradient,) = torch.autograd.grad(loss, last, retain_graph=True)
            norms.append(self.trainer.strategy.reduce(gradient, reduce_op="mean").norm())
        return (norms[0] / (norms[1] + 1e-4)).clamp(0, 1e4).detach()

    def configure_optimizers(self):
        children = (self.encoder, self.quant_conv, self.decoder)
        return [
            self.optimizer(*(child.parameters() for child in children), [self.loss.logvar]),
            self.optimizer(self.loss.discriminator.parameters()),
        ]

    def sample(self, num, generator):
        return torch.rand(num, 1, 8, 8, generator=generator), torch.randn(num, 2, 4, 4, generator=generator)
