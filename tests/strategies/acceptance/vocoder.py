"""A vocoder: waveforms from mel spectrograms; one optimizer steps the backbone and the head, another one two kinds of
discriminators, each of several. Losses: hinge, feature matching, and L1 on spectra.
"""

import torch
from torch import nn
from torch.nn.functional import l1_loss, relu
from torch.nn.utils.parametrizations import weight_norm

from .example import Example

MELS, FRAMES, HOP = 5, 6, 4
SAMPLES = FRAMES * HOP


class Mel(nn.Module):
    """A spectrogram with a buffer and no parameters."""

    def __init__(self, num_bins=9):
        super().__init__()
        self.register_buffer("filters", torch.rand(MELS, num_bins) / num_bins)
        self.register_buffer("window", torch.hann_window(2 * num_bins - 2))

    def forward(self, audio):
        size = len(self.window)
        spectra = torch.stft(audio, size, HOP, window=self.window, return_complex=True, pad_mode="constant")
        return self.filters @ spectra.abs().clamp_min(1e-3)


class Discriminator(nn.Module):
    """Scores strided waveforms, and returns what its layers compute on the way."""

    def __init__(self, stride):
        super().__init__()
        self.layers = nn.ModuleList([weight_norm(nn.Conv1d(1, 3, 5, stride, 2)), weight_norm(nn.Conv1d(3, 4, 3, 1, 1))])
        self.score = nn.Conv1d(4, 1, 3, 1, 1)

    def forward(self, audio):
        features = []
        hidden = audio.unsqueeze(1)
        for layer in self.layers:
            hidden = nn.functional.leaky_relu(layer(hidden), 0.1)
            features.append(hidden)
        return self.score(hidden).flatten(1), features


class Several(nn.Module):
    def __init__(self, strides):
        super().__init__()
        self.discriminators = nn.ModuleList(Discriminator(stride) for stride in strides)

    def forward(self, audio):
        return [discriminator(audio) for discriminator in self.discriminators]


class Vocoder(Example):
    def build(self):
        self.feature_extractor = Mel()
        self.backbone = nn.Sequential(nn.Conv1d(MELS, 6, 3, padding=1), nn.GELU())
        self.head = weight_norm(nn.ConvTranspose1d(6, 1, HOP, HOP))
        self.multiperioddisc = Several((2, 3))
        self.multiresddisc = Several((1, 4))

    def forward(self, mels):
        return torch.tanh(self.head(self.backbone(mels))).squeeze(1)

    def discriminate(self, audio):
        return [*self.multiperioddisc(audio), *self.multiresddisc(audio)]

    def training_step(self, batch):
        optimizer_d, optimizer_g = self.optimizers()
        for optimizer, loss in ((optimizer_d, self.discriminator_loss), (optimizer_g, self.generator_loss)):
            self.toggle_optimizer(optimizer)
            self.accumulated(loss, batch)
            self.step(optimizer)
            self.untoggle_optimizer(optimizer)

    def discriminator_loss(self, audio, mels):
        with torch.no_grad():
            generated = self(mels)
        pairs = zip(self.discriminate(audio), self.discriminate(generated), strict=True)
        return sum(relu(1 - real).mean() + relu(1 + fake).mean() for (real, _), (fake, _) in pairs)

    def generator_loss(self, audio, mels):
        generated = self(mels)
        loss = l1_loss(self.feature_extractor(generated), self.feature_extractor(audio))
        pairs = zip(self.discriminate(audio), self.discriminate(generated), strict=True)
        for (_, real_features), (score, features) in pairs:
            loss = loss + relu(1 - score).mean()
            loss = loss + sum(l1_loss(one, other.detach()) for one, other in zip(features, real_features, strict=True))
        return loss

    def configure_optimizers(self):
        discriminators = self.optimizer(self.multiperioddisc.parameters(), self.multiresddisc.parameters())
        return discriminators, self.optimizer(self.backbone.parameters(), self.head.parameters())

    def sample(self, num, generator):
        return torch.randn(num, SAMPLES, generator=generator), torch.rand(num, MELS, FRAMES, generator=generator)
