"""`lit-gans directions checkpoint=PATH`: generates images along the latent directions that change images most.

Examples:
    lit-gans directions checkpoint=outputs/dcgan_digits/version_0
    lit-gans directions checkpoint=outputs/dcgan_digits/version_0 num=8 reach=4 seed=3
    lit-gans directions checkpoint=outputs/dcgan_digits/version_0 steps=25 output=directions.gif
"""

from __future__ import annotations

from pathlib import Path

import torch

from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.checkpoint import sampler
from lit_gans.cli.walks import walks_file, write_walks
from lit_gans.common.errors import refuse_below
from lit_gans.config.run_folder import output_file
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
    """Writes an image or a video in which one latent moves along directions, and a file with the directions.

    Every row of the image shows one direction. A video shows all directions at once. The directions are found without
    labels (Shen and Zhou 2021) and sorted by how much they change the image, largest change first.

    Args:
        checkpoint: path of a checkpoint, of a run folder or of a folder that `lit-gans export` wrote; zoo/NAME; or
            hf://owner/name. For a run folder, uses the best checkpoint, or else the last.
        num: number of directions.
        steps: number of images from one end of a direction to the other end. The middle image shows the latent itself.
            A video also plays the images backwards.
        reach: distance from the latent to the ends.
        seed: seed of the latent.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        output: output folder, or path of a video that ends in `.gif` or in `.mp4` (needs the extra `video`); null uses
            `generated/` in the run folder.
        fps: frames per second of a video.

    Returns:
        The path of the image or video. A file of the same name with the suffix `.pt` contains the vectors (num, z).
    """
    refuse_below(1, steps=steps)
    source = find_checkpoint(checkpoint)
    module = sampler(checkpoint, source)
    path = walks_file(output, checkpoint, source, "directions.png", fps)
    file = output_file(path.with_suffix(".pt"))
    vectors, _ = found_directions(module, num, module.sampling_generator(weights))
    amounts = torch.linspace(-reach, reach, steps)
    latents = module.latents(1, seed) + amounts[None, :, None] * vectors[:, None, :]
    labels = torch.zeros(num * steps, dtype=torch.long) if module.num_classes else None
    images = module.decode(latents.flatten(0, 1), labels=labels, weights=weights)
    frames = write_walks(images.unflatten(0, (num, steps)), path, fps)
    torch.save(vectors, file)
    print(f"{num} directions, {steps} images each: {path}{frames}")
    return path
