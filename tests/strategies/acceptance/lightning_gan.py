"""The GAN among Lightning's examples, in its structure: fully connected networks, binary cross entropy, two toggled
optimizers, and images that the first turn generates and the second one uses.

Layer norm replaces batch norm, whose statistics depend on the number of ranks.
"""

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from .example import Example


class Generator(nn.Module):
    def __init__(self, latent_dim, img_shape):
        super().__init__()
        self.img_shape = img_shape

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.LayerNorm(out_feat))
            return [*layers, nn.LeakyReLU(0.2)]

        self.model = nn.Sequential(
            *block(latent_dim, 8, normalize=False), *block(8, 12), nn.Linear(12, img_shape.numel()), nn.Tanh()
        )

    def forward(self, z):
        return self.model(z).view(z.size(0), *self.img_shape)


class Discriminator(nn.Module):
    def __init__(self, img_shape):
        super().__init__()
        self.model = nn.Sequential(nn.Linear(img_shape.numel(), 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))

    def forward(self, img):
        return self.model(img.flatten(1))


class LightningGAN(Example):
    def build(self):
        self.img_shape = torch.Size((1, 4, 4))
        self.generator = Generator(5, self.img_shape)
        self.discriminator = Discriminator(self.img_shape)

    def forward(self, z):
        return self.generator(z)

    def adversarial_loss(self, y_hat, y):
        return binary_cross_entropy_with_logits(y_hat, y)

    def training_step(self, batch):
        optimizer_g, optimizer_d = self.optimizers()

        self.toggle_optimizer(optimizer_g)
        self.accumulated(self.generator_loss, batch)
        self.step(optimizer_g)
        self.untoggle_optimizer(optimizer_g)

        self.toggle_optimizer(optimizer_d)
        self.accumulated(self.discriminator_loss, batch)
        self.step(optimizer_d)
        self.untoggle_optimizer(optimizer_d)

    def generator_loss(self, imgs, z):
        valid = torch.ones(imgs.size(0), 1).type_as(imgs)
        return self.adversarial_loss(self.discriminator(self(z)), valid)

    def discriminator_loss(self, imgs, z):
        valid = torch.ones(imgs.size(0), 1).type_as(imgs)
        real_loss = self.adversarial_loss(self.discriminator(imgs), valid)
        fake_loss = self.adversarial_loss(self.discriminator(self(z).detach()), torch.zeros_like(valid))
        return (real_loss + fake_loss) / 2

    def configure_optimizers(self):
        return [self.optimizer(self.generator.parameters()), self.optimizer(self.discriminator.parameters())], []

    def sample(self, num, generator):
        return torch.rand(num, *self.img_shape, generator=generator), torch.randn(num, 5, generator=generator)
