"""Trains with the training loops of NVlabs/stylegan3 and of repositories that copy its code, in float32."""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import torch
from packaging.version import parse

from tests.audits.common import BATCH, RANK, WORLD_SIZE, checkout, cpu, images, share_noise


def train(name: str, networks: tuple[str, str], **options: Any) -> None:
    """Runs `training_loop` of training/training_loop.py in a checkout.

    Args:
        name: folder of the checkout.
        networks: see `cpu`.
        options: arguments of `training_loop` that differ between repositories.
    """
    sys.path.insert(0, str(checkout(name)))
    sys.modules["pkg_resources"] = resources = types.ModuleType("pkg_resources")  # new versions of setuptools lack it
    resources.parse_version = parse  # type: ignore[attr-defined]
    torch.utils.data.Sampler.__init__ = lambda self, *_: None  # type: ignore[method-assign]  # it takes no arguments now
    with cpu(*networks, exact=False):
        torch.distributed.init_process_group("gloo")
        from torch_utils import training_stats
        from training import training_loop

        training_stats.init_multiprocessing(RANK, torch.device("cpu") if WORLD_SIZE > 1 else None)
        collector = training_stats.Collector

        def collect(*args: Any, **kwargs: Any) -> Any:
            share_noise(True)  # the networks exist now, and rank 0 has drawn a grid of images
            return collector(*args, **kwargs)

        training_stats.Collector = collect
        share_noise(False)
        training_loop.training_loop(
            run_dir=os.environ["AUDIT_OUT"],
            training_set_kwargs={"class_name": "training.dataset.ImageFolderDataset", "path": str(images() / "one")},
            data_loader_kwargs={"num_workers": 0},
            num_gpus=WORLD_SIZE,
            rank=RANK,
            batch_size=BATCH,
            total_kimg=1,
            image_snapshot_ticks=None,
            network_snapshot_ticks=None,
            **options,
        )
