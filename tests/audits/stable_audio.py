"""Stability-AI/stable-audio-tools: `AutoencoderTrainingWrapper` with small networks, under the strategy of train.py."""

import sys

from tests.audits.common import BATCH, absent, checkout, cpu, random_rows
from tests.audits.lightning2 import fit

sys.path.insert(0, str(checkout("sat")))
LAYERS = {"channels": 8, "c_mults": [1, 2], "strides": [2, 4]}
SCALES = {"n_ffts": [128, 64], "hop_lengths": [32, 16], "win_lengths": [128, 64], "filters": 4}
STFT = {"fft_sizes": [128, 64], "hop_sizes": [32, 16], "win_lengths": [128, 64]}

if __name__ == "__main__":
    absent("wandb", "audiotools", "k_diffusion", "k_diffusion.sampling", "k_diffusion.external", "einops_exts")
    with cpu("autoencoder", "discriminator"):
        import pytorch_lightning
        from stable_audio_tools.models.autoencoders import create_autoencoder_from_config
        from stable_audio_tools.training.autoencoders import AutoencoderTrainingWrapper

        network = {
            "encoder": {"type": "oobleck", "config": {"in_channels": 1, "latent_dim": 8, **LAYERS}},
            "decoder": {"type": "oobleck", "config": {"out_channels": 1, "latent_dim": 4, **LAYERS}},
            "bottleneck": {"type": "vae"},
            "latent_dim": 4,
            "downsampling_ratio": 8,
            "io_channels": 1,
        }
        weights = {"adversarial": 0.1, "feature_matching": 5.0}
        losses = {
            "discriminator": {"type": "encodec", "config": SCALES, "weights": weights},
            "spectral": {"type": "mrstft", "config": STFT, "weights": {"mrstft": 0.0}},
            "time": {"type": "l1", "config": {}, "weights": {"l1": 1.0}},
            "bottleneck": {"type": "kl", "weights": {"kl": 1e-4}},
        }
        autoencoder = create_autoencoder_from_config({"model": network, "sample_rate": 8000})
        module = AutoencoderTrainingWrapper(autoencoder, sample_rate=8000, loss_config=losses, lr=1e-3, use_ema=False)
        module.log_dict = lambda *args, **kwargs: None
        rows = [(row, 0) for row in random_rows(BATCH * 10, 1, 256) - 0.5]
        fit(pytorch_lightning, module, rows)
