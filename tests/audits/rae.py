"""bytetriper/RAE, src/train_stage1.py: its own script, with a small autoencoder and discriminator; LPIPS is zero."""

import os
import sys
from pathlib import Path

import torch
import yaml
from torch import nn

from tests.audits.common import BATCH, REPAIRED, WORLD_SIZE, absent, checkout, cpu, images, run, zero_loss

ROOT = checkout("rae") / "src"
sys.path.insert(0, str(ROOT))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Conv2d(3, 8, 3, 2, 1), nn.Module()
        self.decoder.decoder_pred = nn.ConvTranspose2d(8, 3, 4, 2, 1)

    def encode(self, images):
        return torch.tanh(self.encoder(images)).detach()

    def decode(self, latents):
        return torch.sigmoid(self.decoder.decoder_pred(latents))

    def forward(self, images):
        return self.decode(self.encode(images))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 3, 2, 1))

    def forward(self, fake, real):
        return self.layers(fake), None if real is None else self.layers(real)


class NoAugmentation:
    def aug(self, images):
        return images


if __name__ == "__main__":
    optimizer = {"optimizer": {"lr": 1e-3, "betas": [0.5, 0.9]}}
    weights = {"perceptual_weight": 0.0, "disc_weight": 0.5, "disc_loss": "hinge", "max_d_weight": 0.0}
    training = {"global_batch_size": BATCH, "num_workers": 0, "epochs": 9, "clip_grad": None, "sample_every": 10**9}
    config = {
        "stage_1": {"target": "__main__.Autoencoder"},
        "training": optimizer | training | {"checkpoint_interval": 0, "log_interval": 0},
        "gan": {"disc": optimizer | {"arch": {}}, "loss": weights},
    }
    file = Path(os.environ["AUDIT_OUT"], "rae.yaml")
    os.environ["EXPERIMENT_NAME"] = f"{WORLD_SIZE}"
    file.write_text(yaml.safe_dump(config))
    absent("wandb")
    with cpu("decoder", "discriminator"):
        import disc
        import utils.model_utils
        from torchvision import transforms

        transforms.RandomCrop = transforms.CenterCrop

        disc.build_discriminator = lambda config, device: (Discriminator(), NoAugmentation())
        disc.LPIPS = zero_loss
        utils.model_utils.instantiate_from_config = lambda config: Autoencoder()
        repair = (("= discriminator(fake_input", "= ddp_disc(fake_input"),) if REPAIRED else ()
        options = ["--config", file, "--data-path", images(48), "--image-size", 32, "--results-dir", file.parent]
        os.chdir(ROOT.parent)  # the script copies its own folder
        run(ROOT / "train_stage1.py", *options, replaced=repair, name="train_stage1_of_rae").get("main")()
