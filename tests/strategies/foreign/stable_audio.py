"""The autoencoder of stable-audio-tools: both optimizers are never toggled, and losses call methods of networks."""

import torch
from stable_audio_tools.models.autoencoders import create_autoencoder_from_config
from stable_audio_tools.training.autoencoders import AutoencoderTrainingWrapper
from torch.distributed.fsdp import register_fsdp_forward_method

from lit_gans.strategies.base import backward_arguments

LAYERS = {"channels": 8, "c_mults": [1, 2], "strides": [2, 4]}
SCALES = {"n_ffts": [128, 64], "hop_lengths": [32, 16], "win_lengths": [128, 64], "filters": 8}
STFT = {"fft_sizes": [128, 64], "hop_sizes": [32, 16], "win_lengths": [128, 64]}


class Ported(AutoencoderTrainingWrapper):
    def on_train_start(self):
        register_fsdp_forward_method(self.discriminator, "loss")  # needed by network_fsdp only

    def manual_backward(self, loss):
        name = "discriminator" if self.global_step % 2 else "autoencoder"
        super().manual_backward(loss, **backward_arguments(self.trainer.strategy, name))


def module():
    autoencoder = {
        "encoder": {"type": "oobleck", "config": {"in_channels": 2, "latent_dim": 8, **LAYERS}},
        "decoder": {"type": "oobleck", "config": {"out_channels": 2, "latent_dim": 4, **LAYERS}},
        "bottleneck": {"type": "vae"},
        "latent_dim": 4,
        "downsampling_ratio": 8,
        "io_channels": 2,
    }
    losses = {
        "discriminator": {
            "type": "encodec",
            "config": SCALES,
            "weights": {"adversarial": 0.1, "feature_matching": 5.0},
        },
        "spectral": {"type": "mrstft", "config": STFT, "weights": {"mrstft": 1.0}},
        "time": {"type": "l1", "config": {}, "weights": {"l1": 0.1}},
        "bottleneck": {"type": "kl", "weights": {"kl": 1e-4}},
    }
    made = create_autoencoder_from_config({"model": autoencoder, "sample_rate": 8000})
    return Ported(made, sample_rate=8000, loss_config=losses, lr=1e-3, use_ema=False)


def batches(generator):
    return [(torch.randn(4, 2, 1024, generator=generator) * 0.1, torch.zeros(4)) for _ in range(4)]
