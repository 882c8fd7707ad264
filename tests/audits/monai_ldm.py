"""Project-MONAI/tutorials, generation/2d_ldm/train_autoencoder.py: its script; the network is small, images random."""

import json
import os
import sys
from pathlib import Path

import torch

from tests.audits.common import BATCH, RANK, WORLD_SIZE, checkout, cpu, loader, random_rows, run, zero_loss

ROOT = checkout("monai") / "generation/2d_ldm"
sys.path.insert(0, str(ROOT))


def loaders(*args, **kwargs):
    data = [{"image": row} for row in random_rows(BATCH * 6, 1, 32, 32)]
    return loader(data), loader(data[:BATCH])


if __name__ == "__main__":
    out = os.environ["AUDIT_OUT"]
    network = {
        "_target_": "monai.networks.nets.AutoencoderKL",
        "spatial_dims": 2,
        "in_channels": 1,
        "out_channels": 1,
        "latent_channels": 2,
        "channels": [8, 8],
        "num_res_blocks": 1,
        "norm_num_groups": 2,
        "attention_levels": [False, False],
        "with_encoder_nonlocal_attn": False,
        "with_decoder_nonlocal_attn": False,
    }
    training = {"batch_size": 1, "patch_size": [32, 32], "lr": 1e-3 / WORLD_SIZE, "perceptual_weight": 0.0}
    training |= {"kl_weight": 1e-3, "max_epochs": 9, "val_interval": 10**9, "recon_loss": "l1"}
    config = {
        "autoencoder_def": network,
        "autoencoder_train": training,
        "spatial_dims": 2,
        "sample_axis": 2,
        "image_channels": 1,
    }
    environment = {"model_dir": out, "tfevent_path": out, "resume_ckpt": False, "data_base_dir": out, "output_dir": out}
    for name, values in (("config", config), ("environment", environment)):
        Path(out, f"{name}{RANK}{WORLD_SIZE}.json").write_text(json.dumps(values))
    files = [f"{out}/{name}{RANK}{WORLD_SIZE}.json" for name in ("config", "environment")]
    with cpu("autoencoder", "discriminator"):
        import monai.losses
        import utils

        monai.losses.PerceptualLoss = zero_loss
        utils.prepare_brats2d_dataloader = loaders
        torch.autograd.set_detect_anomaly = lambda *_: None
        warm_up = (("autoencoder_warm_up_n_epochs = 5", "autoencoder_warm_up_n_epochs = -1"),)
        arguments = ["-c", files[0], "-e", files[1], "-g", 2]
        run(ROOT / "train_autoencoder.py", *arguments, replaced=warm_up)
