"""huggingface/diffusers, examples/research_projects/autoencoderkl/train_autoencoderkl.py: unedited, LPIPS is zero."""

import json
import os
import sys
from pathlib import Path
from unittest.mock import MagicMock

from tests.audits.common import LOCAL_BATCH, absent, checkout, cpu, images, run, zero_loss

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
    repairs = (
        ("accelerator.unwrap_model(vae).encode(targets).latent_dist", "vae(targets)"),
        ("posterior.sample()", "posterior[1]"),
    )
    with cpu("autoencoder", "discriminator", interleaved=False, exact=False):
        absent("wandb")
        import lpips
        import torch.utils.tensorboard

        torch.utils.tensorboard.SummaryWriter = MagicMock()
        lpips.LPIPS = zero_loss
        arguments = [f"--{name}={value}" for name, value in options.items()]
        run(SCRIPT, *arguments)
