"""huggingface/diffusers, examples/research_projects/autoencoderkl/train_autoencoderkl.py: its script; LPIPS is zero."""

import json
import os
import sys
from pathlib import Path
from unittest.mock import MagicMock

from tests.audits.common import LOCAL_BATCH, REPAIRED, absent, checkout, cpu, images, in_order, run, zero_loss

sys.path.insert(0, str(checkout("taming")))
SCRIPT = checkout("diffusers") / "examples/research_projects/autoencoderkl/train_autoencoderkl.py"
CONFIG = {
    "_class_name": "AutoencoderKL",
    "block_out_channels": [8, 8],
    "down_block_types": 2 * ["DownEncoderBlock2D"],
    "up_block_types": 2 * ["UpDecoderBlock2D"],
    "latent_channels": 2,
    "layers_per_block": 1,
    "norm_num_groups": 2,
}
REPAIR = (
    ("accelerator.unwrap_model(vae).encode(targets).latent_dist", "vae(targets)"),
    ("accelerator.unwrap_model(vae).decode(latents).sample", "posterior.reconstructions"),
    ("(reconstructions)\n                    disc_loss", "(reconstructions.detach())\n                    disc_loss"),
)


if __name__ == "__main__":
    out = os.environ["AUDIT_OUT"]
    config = Path(out, "vae", "config.json")
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps(CONFIG))
    options = {
        "model_config_name_or_path": config.parent,
        "train_data_dir": images(),
        "output_dir": out,
        "resolution": 32,
        "train_batch_size": LOCAL_BATCH,
        "num_train_epochs": 9,
        "rec_loss": "l1",
        "learning_rate": 1e-3,
        "disc_learning_rate": 1e-3,
        "disc_start": 0,
        "max_grad_norm": 1e9,
        "validation_image": images() / "one" / "0000.png",
        "validation_steps": 10**9,
        "checkpointing_steps": 10**9,
        "seed": 0,
        "disc_scale": 0,
        "cache_dir": Path(out, "cache" + os.environ.get("RANK", "0")),
    }
    with cpu("autoencoder", "discriminator", interleaved=False):
        in_order()
        absent("wandb")
        import lpips
        import torch
        import torch.utils.tensorboard

        torch.utils.tensorboard.SummaryWriter = MagicMock()
        lpips.LPIPS = zero_loss
        if REPAIRED:
            from diffusers import AutoencoderKL

            original = AutoencoderKL.forward

            def forward(self, images):
                if not torch.is_grad_enabled():
                    return original(self, images)  # validation
                posterior = self.encode(images).latent_dist
                posterior.reconstructions = self.decode(posterior.sample()).sample
                return posterior

            AutoencoderKL.forward = forward
        arguments = [f"--{name}={value}" for name, value in options.items()]
        exact = ("unwrap_model(vae).dtype != torch.float32", "unwrap_model(vae).dtype != torch.float64")
        run(SCRIPT, *arguments, replaced=(exact, *(REPAIR if REPAIRED else ())))
