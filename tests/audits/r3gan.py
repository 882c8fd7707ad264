"""brownvc/R3GAN, training/training_loop.py: its function, with narrow networks."""

import os
import sys
import types

import torch
from packaging.version import parse

from tests.audits.common import BATCH, RANK, WORLD_SIZE, checkout, cpu, images, share_noise

ROOT = checkout("r3gan")
sys.path.insert(0, str(ROOT))

if __name__ == "__main__":
    sys.modules["pkg_resources"] = resources = types.ModuleType("pkg_resources")  # new versions of setuptools lack it
    resources.parse_version = parse
    torch.utils.data.Sampler.__init__ = lambda self, *_: None  # it no longer takes arguments
    with cpu("discriminator", "generator", exact=False):
        torch.distributed.init_process_group("gloo")
        from torch_utils import training_stats
        from training import training_loop

        training_stats.init_multiprocessing(RANK, torch.device("cpu") if WORLD_SIZE > 1 else None)
        collector = training_stats.Collector

        def collect(*args, **kwargs):
            share_noise(True)  # the networks exist now, and rank 0 has drawn a grid of images
            return collector(*args, **kwargs)

        training_stats.Collector = collect
        share_noise(False)
        narrow = {
            "WidthPerStage": [8, 8, 8, 8],
            "CardinalityPerStage": [2, 2, 2, 2],
            "BlocksPerStage": [1, 1, 1, 1],
            "ExpansionFactor": 1,
            "FP16Stages": [],
        }
        optimizer = {"class_name": "torch.optim.Adam", "betas": [0.0, 0.0], "eps": 1e-8}
        constant = {"base_value": 0.001, "total_nimg": 10**6, "final_value": 0.001}
        training_loop.training_loop(
            run_dir=os.environ["AUDIT_OUT"],
            training_set_kwargs={"class_name": "training.dataset.ImageFolderDataset", "path": str(images() / "one")},
            data_loader_kwargs={"num_workers": 0},
            G_kwargs={"class_name": "training.networks.Generator", "NoiseDimension": 8, **narrow},
            D_kwargs={"class_name": "training.networks.Discriminator", **narrow},
            G_opt_kwargs=optimizer,
            D_opt_kwargs=optimizer,
            lr_scheduler=constant,
            beta2_scheduler=constant | {"base_value": 0.9, "final_value": 0.9},
            gamma_scheduler=constant | {"base_value": 1.0, "final_value": 1.0},
            ema_scheduler=constant,
            aug_scheduler=constant | {"base_value": 0.0, "final_value": 0.0},
            loss_kwargs={"class_name": "training.loss.R3GANLoss"},
            num_gpus=WORLD_SIZE,
            rank=RANK,
            batch_size=BATCH,
            g_batch_gpu=BATCH // WORLD_SIZE,
            d_batch_gpu=BATCH // WORLD_SIZE,
            total_kimg=1,
            image_snapshot_ticks=None,
            network_snapshot_ticks=None,
        )
