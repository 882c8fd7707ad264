"""NVlabs/stylegan3, training/training_loop.py: its function, with the narrow networks of StyleGAN2."""

import os
import sys
import types

import torch
from packaging.version import parse

from tests.audits.common import BATCH, RANK, WORLD_SIZE, checkout, cpu, images, share_noise

ROOT = checkout("stylegan3")
sys.path.insert(0, str(ROOT))

if __name__ == "__main__":
    sys.modules["pkg_resources"] = resources = types.ModuleType("pkg_resources")  # new versions of setuptools lack it
    resources.parse_version = parse
    torch.utils.data.Sampler.__init__ = lambda self, *_: None  # it no longer takes arguments
    with cpu("generator", "discriminator", exact=False):
        from training import training_loop

        torch.distributed.init_process_group("gloo")
        from torch_utils import training_stats

        training_stats.init_multiprocessing(RANK, torch.device("cpu") if WORLD_SIZE > 1 else None)
        collector = training_stats.Collector

        def collect(*args, **kwargs):
            share_noise(True)  # the networks exist now, and rank 0 has drawn a grid of images
            return collector(*args, **kwargs)

        training_stats.Collector = collect
        share_noise(False)
        narrow = {"channel_base": 256, "channel_max": 8, "num_fp16_res": 0}
        optimizer = {"class_name": "torch.optim.Adam", "lr": 0.002, "betas": [0.0, 0.99], "eps": 1e-8}
        generator = {"class_name": "training.networks_stylegan2.Generator", "z_dim": 8, "w_dim": 8}
        discriminator = {"class_name": "training.networks_stylegan2.Discriminator", "block_kwargs": {}}
        loss = {"class_name": "training.loss.StyleGAN2Loss", "r1_gamma": 1.0, "style_mixing_prob": 0}
        training_loop.training_loop(
            run_dir=os.environ["AUDIT_OUT"],
            training_set_kwargs={"class_name": "training.dataset.ImageFolderDataset", "path": str(images() / "one")},
            data_loader_kwargs={"num_workers": 0},
            G_kwargs={**generator, "mapping_kwargs": {"num_layers": 2}, **narrow},
            D_kwargs={**discriminator, "epilogue_kwargs": {"mbstd_group_size": 1}, "mapping_kwargs": {}, **narrow},
            G_opt_kwargs=optimizer,
            D_opt_kwargs=optimizer,
            loss_kwargs=loss,
            D_reg_interval=2,
            num_gpus=WORLD_SIZE,
            rank=RANK,
            batch_size=BATCH,
            batch_gpu=BATCH // WORLD_SIZE,
            total_kimg=1,
            image_snapshot_ticks=None,
            network_snapshot_ticks=None,
        )
