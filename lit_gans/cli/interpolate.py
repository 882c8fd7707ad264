"""`lit-gans interpolate checkpoint=PATH`: walks between latents.

Examples:
    lit-gans interpolate checkpoint=outputs/dcgan_digits/version_0/checkpoints/last.ckpt
    lit-gans interpolate checkpoint=outputs/dcgan_digits/version_0 num=4 steps=12
    lit-gans interpolate checkpoint=outputs/dcgan_digits/version_0 weights=raw output=walks
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torchvision.utils import save_image

from lit_gans.cli.sample import loaded, maps_latents_to_images, refuse_many, refuse_numbers
from lit_gans.common.errors import RefusedInput
from lit_gans.config.run_folder import made_folder, replacing_note
from lit_gans.latents.interpolation import slerp
from lit_gans.training.sampling import Weights

logger = logging.getLogger(__name__)


def interpolate(
    checkpoint: str,
    num: int = 8,
    steps: int = 10,
    seed: int = 0,
    weights: Weights | None = None,
    output: str | None = None,
) -> Path:
    """Writes an image whose rows interpolate between two latents on the sphere (White 2016).

    Args:
        checkpoint: path of a checkpoint, or folder of a run, which uses its best checkpoint, or the last if there is
            none; a folder of `lit-gans export`; zoo/NAME; or hf://owner/name.
        num: number of rows.
        steps: number of images per row, at least 2.
        seed: seed of the latents.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        output: output folder; null uses `generated/` in the run's folder.

    Returns:
        The path of the image.
    """
    if steps < 2:
        raise RefusedInput(f"steps={steps} must be at least 2, for the two ends.")
    refuse_numbers(seed, num, steps)
    module, folder = loaded(checkpoint, output)
    if not maps_latents_to_images(module):
        raise RefusedInput(f"{checkpoint}: only a generator of images from latents can walk between latents.")
    refuse_many(module, num * steps)
    start, end = module.latents(2 * num, seed).split(num)
    labels = torch.arange(num) % module.num_classes if module.num_classes else None  # one class per row
    logger.info("generating %s images", f"{num * steps:,}")
    walks = slerp(start, end, steps).flatten(0, 1)
    images = module.decode(walks, labels=None if labels is None else labels.repeat_interleave(steps), weights=weights)
    path = made_folder(folder, "output") / "interpolation.png"
    replaced = replacing_note(path)
    save_image(images, path, nrow=steps)
    print(f"{num} walks of {steps} images: {path}{replaced}")
    return path
