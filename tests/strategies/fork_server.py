"""Imports what ranks need, in the process that forks them (see `ranks.forking`): none of them imports it again.

That process computes nothing itself: threads and process groups do not survive a fork.
"""

import gc
import importlib
import os
import warnings
from functools import cache
from pathlib import Path

PRELOADED = (
    "pytest",
    "torch._inductor.compile_fx",  # DeepSpeed imports it with its first engine
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "lightning.pytorch",
    "deepspeed",
    "deepspeed.module_inject",
    "deepspeed.utils.zero_to_fp32",
    "lit_gans",
    "lit_gans.callbacks",
    "lit_gans.cli.commands.fit",
    "lit_gans.cli.commands.train",
    "lit_gans.config.hydra_app",
    "lit_gans.strategies.ddp",
    "lit_gans.strategies.deepspeed.strategy",
    "lit_gans.strategies.fsdp",
    "tests.strategies.cells",
)


def preload():
    warnings.simplefilter("ignore")
    for name in PRELOADED:
        importlib.import_module(name)
    from lightning.fabric.utilities import registry

    from tests.strategies.cells import many_images

    many_images()
    registry.entry_points = cache(registry.entry_points)  # else each Trainer reads the metadata of all packages
    num_threads = len(os.listdir("/proc/self/task")) if Path("/proc/self/task").is_dir() else 1
    assert num_threads == 1, f"{num_threads} threads: forked ranks would lack all but one"
    gc.collect()
    gc.freeze()  # so that ranks share the memory of what is imported


preload()
