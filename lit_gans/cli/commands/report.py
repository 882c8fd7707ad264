"""`lit-gans report run=FOLDER`: writes an HTML page of a run: samples over time, curves, nearest real images.

Examples:
    lit-gans report run=outputs/dcgan_digits/version_0
    lit-gans report run=outputs/dcgan_digits/version_0 num=36 neighbors=false
    lit-gans report run=outputs/dcgan_digits/version_0 output=report.html
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import Tensor

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.checkpoint import refuse_without_latents
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.paths import shown
from lit_gans.config.load import config_of, module_from, trained_with
from lit_gans.config.run_folder import output_file
from lit_gans.data.class_names import names_or_indices
from lit_gans.data.contracts import RealImages
from lit_gans.export.card import training_data
from lit_gans.report.page import Run, page

logger = logging.getLogger(__name__)

_ROWS = 8  # number of rows in the grid of samples by class


def report(run: str, num: int = 64, neighbors: bool = True, seed: int = 0, output: str | None = None) -> Path:
    """Writes a report of a run as a single self-contained HTML page, which is readable on phones.

    The page shows samples of the best checkpoint, sample grids over time, losses and scores, samples by class, the
    nearest real images of some samples, and the settings.

    Args:
        run: run folder.
        num: number of samples.
        neighbors: whether to find the nearest real images. This reads the training data.
        seed: seed of the samples.
        output: HTML file to write; null writes `report.html` in the run folder.

    Returns:
        The path of the page.
    """
    refuse_below(1, num=num)
    folder = shown(os.path.abspath(run))
    folder = folder if folder.name else folder.absolute()  # the current folder has no name
    if not os.path.isfile(folder / "config.yaml"):
        raise RefusedInput(f"run={run}: there is no config.yaml in it: set run= to the folder of a run.")
    target = output_file(output or folder / "report.html")
    checkpoint = find_checkpoint(folder)
    content = read_checkpoint(checkpoint)
    module = module_from(content, checkpoint)
    refuse_without_latents(module, run)
    logger.info("generating %s images", f"{num:,}")
    samples = module.sample(num, seed=seed)
    by_class = None
    classes = names_or_indices(module.class_names, module.num_classes)
    if module.num_classes:
        latents = module.latents(_ROWS, seed).repeat_interleave(module.num_classes, 0)
        by_class = module.decode(latents, labels=torch.arange(module.num_classes).repeat(_ROWS))
    argument = quote(f"checkpoint={folder}")
    commands = (
        f"lit-gans sample {argument} num=64",
        f"lit-gans evaluate {argument}",
        f"lit-gans directions {argument}",
        f"lit-gans demo {argument}",
    )
    iteration, found = content.get("global_step", 0), Run.read(folder)
    try:
        real = _real_images(content) if neighbors else None
        credit = (training_data(found.config) or {}).get("attribution")
        text = page(found, samples, iteration, by_class, classes, real, commands, credit)
    except RefusedInput as error:
        if not neighbors:
            raise
        raise RefusedInput(f"{error} neighbors=false writes the report without the training data.") from error
    target.write_text(text, encoding="utf-8", errors="backslashreplace")
    print(f"the report of {folder}: {target}")
    return target


def _real_images(checkpoint: dict[str, Any]) -> Iterator[Tensor] | None:
    """Returns batches of all training images, or None if the checkpoint does not contain its data or has no images."""
    if "data" not in config_of(checkpoint):  # trained by a script or by the plain Lightning CLI
        logger.info("the nearest real images are left out: the checkpoint does not contain its data configuration")
        return None
    data = trained_with(checkpoint, "data")
    return data.real_batches() if isinstance(data, RealImages) else None
