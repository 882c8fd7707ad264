"""huggingface/diffusers, examples/vqgan/train_vqgan.py: its script; the perceptual network returns the images."""

import json
import os
import sys
from pathlib import Path
from unittest.mock import MagicMock

from torch import nn

from tests.audits.common import LOCAL_BATCH, REPAIRED, checkout, cpu, images, in_order, run

FOLDER = checkout("diffusers") / "examples/vqgan"
sys.path.insert(0, str(FOLDER))
CONFIG = {
    "_class_name": "VQModel",
    "act_fn": "silu",
    "block_out_channels": [8, 8],
    "down_block_types": 2 * ["DownEncoderBlock2D"],
    "up_block_types": 2 * ["UpDecoderBlock2D"],
    "latent_channels": 2,
    "layers_per_block": 1,
    "norm_num_groups": 2,
    "num_vq_embeddings": 16,
    "vq_embed_dim": 2,
}


class Features(nn.Module):
    """Perceptual network that returns the images unchanged."""

    pretrained_cfg: dict = {"input_size": (3, 32, 32), "crop_pct": 1.0}

    def __init__(self):
        super().__init__()
        self.head = nn.Identity()

    def forward(self, images):
        return [images]


if __name__ == "__main__":
    out = os.environ["AUDIT_OUT"]
    config = Path(out, "vq", "config.json")
    config.parent.mkdir(exist_ok=True)
    config.write_text(json.dumps(CONFIG))
    discriminator = Path(out, "discriminator", "config.json")
    discriminator.parent.mkdir(exist_ok=True)
    discriminator.write_text(json.dumps({"_class_name": "Discriminator", "hidden_channels": 8, "depth": 4}))
    options = {
        "model_config_name_or_path": config.parent,
        "discriminator_config_name_or_path": discriminator.parent,
        "train_data_dir": images(),
        "output_dir": Path(out, "output"),
        "resolution": 32,
        "train_batch_size": LOCAL_BATCH,
        "num_train_epochs": 9,
        "learning_rate": 1e-3,
        "discr_learning_rate": 1e-3,
        "max_grad_norm": 1e9,
        "validation_steps": 10**9,
        "checkpointing_steps": 10**9,
        "log_steps": 10**9,
        "log_grad_norm_steps": 10**9,
        "seed": 0,
        "cache_dir": Path(out, "cache" + os.environ.get("RANK", "0")),
        "timm_model_layers": "head",
    }
    constant = ("adaptive_weight.clamp(max=1e4)", "1.0")  # otherwise, it depends on each process's images
    prepared = "model, discriminator, optimizer, discr_optimizer, lr_scheduler, discr_lr_scheduler"
    repair = (
        (f"{prepared} = accelerator.prepare", f"train_dataloader, {prepared} = accelerator.prepare"),
        (f"        {prepared}\n", f"        train_dataloader, {prepared}\n"),
    )
    with cpu("autoencoder", "discriminator", interleaved=False):
        in_order()
        import timm
        import torch.utils.tensorboard
        from accelerate import Accelerator

        torch.utils.tensorboard.SummaryWriter = MagicMock()
        gather = Accelerator.gather
        Accelerator.gather = lambda self, tensor: gather(self, tensor.detach())  # the result is only logged
        timm.create_model = lambda *args, **kwargs: Features()
        arguments = [f"--{name}={value}" for name, value in options.items()]
        run(FOLDER / "train_vqgan.py", *arguments, replaced=(constant, *(repair if REPAIRED else ())))
