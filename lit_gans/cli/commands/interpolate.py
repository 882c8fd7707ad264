"""`lit-gans interpolate checkpoint=PATH`: generates images along walks between latents.

Examples:
    lit-gans interpolate checkpoint=outputs/dcgan_digits/version_0/checkpoints/last.ckpt
    lit-gans interpolate checkpoint=outputs/dcgan_digits/version_0 num=4 steps=12
    lit-gans interpolate checkpoint=outputs/dcgan_digits/version_0 num=9 steps=48 output=walk.gif
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.checkpoint import sampler
from lit_gans.cli.walks import walks_file, write_walks
from lit_gans.common.errors import refuse_below
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
    fps: int = 24,
) -> Path:
    """Writes an image or a video of walks between pairs of latents, with spherical interpolation (White 2016).

    Every row of the image is a walk. A video shows all walks at once.

    Args:
        checkpoint: path of a checkpoint, of a run folder or of a folder that `lit-gans export` wrote; zoo/NAME; or
            hf://owner/name. For a run folder, uses the best checkpoint, or else the last.
        num: number of walks.
        steps: number of images from the start to the end of a walk. A video also plays the walk backwards.
        seed: seed of the latents.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        output: output folder, or path of a video that ends in `.gif` or in `.mp4` (needs the extra `video`); null uses
            `generated/` in the run folder.
        fps: frames per second of a video.

    Returns:
        The path of the image or video.
    """
    refuse_below(1, num=num, steps=steps)
    source = find_checkpoint(checkpoint)
    module = sampler(checkpoint, source)
    path = walks_file(output, checkpoint, source, "interpolation.png", fps)
    start, end = module.latents(2 * num, seed).split(num)
    labels = torch.arange(num) % module.num_classes if module.num_classes else None  # one class per row
    logger.info("generating %s images", f"{num * steps:,}")
    walks = slerp(start, end, steps).flatten(0, 1)
    images = module.decode(walks, labels=None if labels is None else labels.repeat_interleave(steps), weights=weights)
    frames = write_walks(images.unflatten(0, (num, steps)), path, fps)
    print(f"{num} walks of {steps} images: {path}{frames}")
    return path
