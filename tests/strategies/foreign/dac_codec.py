"""The step of descript-audio-codec 1.0.0, whose trainer is a script of its own, as a LightningModule."""

import torch
from audiotools import AudioSignal
from dac.model import DAC, Discriminator
from dac.nn import loss as losses
from pytorch_lightning import LightningModule

LAMBDAS = {"mel": 15.0, "feature": 2.0, "adversarial": 1.0, "commitment": 0.25, "codebook": 1.0}


class Ported(LightningModule):
    def __init__(self, generator, discriminator, mel_loss):
        super().__init__()
        self.automatic_optimization = False
        self.generator, self.discriminator = generator, discriminator
        self.gan_loss, self.mel_loss = losses.GANLoss(discriminator), mel_loss

    def training_step(self, audio, batch_idx):
        for_generator, for_discriminator = self.optimizers()
        out = self.generator(audio, self.generator.sample_rate)
        made, signal = (AudioSignal(each, self.generator.sample_rate) for each in (out["audio"], audio))

        self.toggle_optimizer(for_discriminator)
        self.manual_backward(self.gan_loss.discriminator_loss(made, signal))
        for_discriminator.step()
        for_discriminator.zero_grad()
        self.untoggle_optimizer(for_discriminator)

        self.toggle_optimizer(for_generator)
        adversarial, feature = self.gan_loss.generator_loss(made, signal)
        found = {"adversarial": adversarial, "feature": feature, "mel": self.mel_loss(made, signal)}
        found |= {"commitment": out["vq/commitment_loss"], "codebook": out["vq/codebook_loss"]}
        self.manual_backward(sum(LAMBDAS[name] * loss for name, loss in found.items()))
        for_generator.step()
        for_generator.zero_grad()
        self.untoggle_optimizer(for_generator)

    def configure_optimizers(self):
        networks = (self.generator, self.discriminator)
        return [torch.optim.AdamW(each.parameters(), 1e-3, betas=(0.8, 0.99)) for each in networks]


def filters(*args, theirs=AudioSignal.get_mel_filters, **kwargs):
    """Returns their filters, which are in float32, in the dtype of the training."""
    return theirs(*args, **kwargs).astype(torch.empty(0).numpy().dtype)


AudioSignal.get_mel_filters = staticmethod(filters)


def module():
    generator = DAC(
        encoder_dim=8,
        encoder_rates=[2, 4],
        decoder_dim=32,
        decoder_rates=[4, 2],
        n_codebooks=2,
        codebook_size=16,
        sample_rate=8000,
    )
    discriminator = Discriminator(periods=[2], fft_sizes=[128], sample_rate=8000)
    mel = losses.MelSpectrogramLoss(
        n_mels=[10], window_lengths=[64], mel_fmin=[0], mel_fmax=[None], pow=1.0, clamp_eps=1e-5, mag_weight=0.0
    )
    return Ported(generator, discriminator, mel)


def batches(generator):
    return [torch.randn(4, 1, 2048, generator=generator) * 0.1 for _ in range(3)]
