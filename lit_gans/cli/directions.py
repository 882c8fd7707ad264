"""`lit-gans directions checkpoint=PATH`: what a generator can change: images along its strongest directions.

Examples:
    lit-gans directions checkpoint=outputs/dcgan_digits/version_0
    lit-gans directions checkpoint=outputs/dcgan_digits/version_0 num=8 reach=4 seed=3
    lit-gans directions checkpoint=outputs/dcgan_digits/version_0 steps=25 output=directions.gif
"""

from __future__ import annotations

from pathlib import Path

import torch

from lit_gans.cli.sample import loaded
from lit_gans.cli.walks import walks_file, write_walks
from lit_gans.common.video import is_video
from lit_gans.latents.directions import directions as found_directions
from lit_gans.training.sampling import Weights


def directions(
    checkpoint: str,
    num: int = 5,
    steps: int = 7,
    reach: float = 6.0,
    seed: int = 0,
    weights: Weights | None = None,
    output: str | None = None,
    fps: int = 24,
) -> Path:
    """Writes an image whose rows move one latent along a direction, or a video, and the directions themselves.

    The directions need no labels (Shen and Zhou 2021); those that change the image most come first.

    Args:
        checkpoint: path of a checkpoint, or folder of a run, which uses its best checkpoint, or the last if there is
            none; a folder of `lit-gans export`; zoo/NAME; or hf://owner/name.
        num: number of directions.
        steps: number of images from one end to the other; the middle one is that of the latent. A video also goes back.
        reach: how far the ends are from the latent.
        seed: seed of the latent.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        output: output folder, or a video: a file that ends in `.gif`, or in `.mp4` (extra `video`); null uses
            `generated/` in the run's folder.
        fps: frames per second of a video.

    Returns:
        The path of the image or video; `directions.pt` beside it holds the vectors (num, z).
    """
    module, folder = loaded(checkpoint, None if is_video(output) else output)
    path = walks_file(output, folder, "directions.png")
    vectors, _ = found_directions(module, num, module.sampling_generator(weights))
    amounts = torch.linspace(-reach, reach, steps)
    latents = module.latents(1, seed) + amounts[None, :, None] * vectors[:, None, :]
    labels = torch.zeros(num * steps, dtype=torch.long) if module.num_classes else None
    images = module.decode(latents.flatten(0, 1), labels=labels, weights=weights)
    more = write_walks(images.unflatten(0, (num, steps)), path, fps)
    torch.save(vectors, path.with_name("directions.pt"))
    print(f"{num} directions, {steps} images each: {path}{more}")
    return path
