"""The experiment of vocos 0.1.0, which is written for Lightning 1: one optimizer over two discriminators."""

import torch
from vocos import experiment
from vocos.discriminators import MultiPeriodDiscriminator, MultiResolutionDiscriminator
from vocos.feature_extractors import MelSpectrogramFeatures
from vocos.heads import ISTFTHead
from vocos.models import VocosBackbone

experiment.plot_spectrogram_to_numpy = lambda *_: None  # a picture for the logger, which needs matplotlib below 3.10


class Ported(experiment.VocosExp):
    validation_epoch_end = None  # a hook that Lightning 2 refuses

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        for index, (optimizer, scheduler) in enumerate(zip(self.optimizers(), self.lr_schedulers(), strict=True)):
            self.toggle_optimizer(optimizer)
            self.manual_backward(super().training_step(batch, batch_idx, index))
            optimizer.step()
            optimizer.zero_grad()
            self.untoggle_optimizer(optimizer)
            scheduler.step()


def module():
    features = MelSpectrogramFeatures(sample_rate=24000, n_fft=256, hop_length=64, n_mels=40)
    backbone = VocosBackbone(input_channels=40, dim=32, intermediate_dim=64, num_layers=2)
    made = Ported(features, backbone, ISTFTHead(dim=32, n_fft=256, hop_length=64, padding="center"), 24000, 5e-4)
    made.multiperioddisc = MultiPeriodDiscriminator(periods=(3,))  # of 42 million parameters, 8 will do
    made.multiresddisc = MultiResolutionDiscriminator(fft_sizes=(256,))
    return made


def batches(generator):
    return [torch.randn(4, 2048, generator=generator) * 0.1 for _ in range(3)]
