"""`lit-gans project checkpoint=PATH input=IMAGE`: finds the latents whose images are closest to your images.

Examples:
    lit-gans project checkpoint=outputs/dcgan_digits/version_0 input=PHOTO.png
    lit-gans project checkpoint=outputs/dcgan_digits/version_0 input=PHOTOS steps=1000 prior=0.01
    lit-gans project checkpoint=outputs/dcgan_digits/version_0 input=PHOTOS label=3 output=projected
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.checkpoint import frame_of, generated_folder, read_with, refuse_without_latents
from lit_gans.common.errors import refuse_below
from lit_gans.common.progress import follow
from lit_gans.config.load import module_from
from lit_gans.config.run_folder import output_file
from lit_gans.data.images import images_at, read_at, write_grid
from lit_gans.latents.projection import project as found_latents
from lit_gans.training.sampling import Weights


def project(
    checkpoint: str,
    input: str,
    label: int | str | None = None,
    steps: int = 500,
    starts: int = 16,
    prior: float = 1e-3,
    seed: int = 0,
    value_range: tuple[float, float] | None = None,
    max_pixels: int | None = 178_956_970,
    weights: Weights | None = None,
    output: str | None = None,
) -> Path:
    """Projects images to latents, and writes a grid of the images and their projections.

    The projection of an image is the generated image that is closest to it. The latents are found by optimization.

    Args:
        checkpoint: path of a checkpoint, of a run folder or of a folder that `lit-gans export` wrote; zoo/NAME; or
            hf://owner/name. For a run folder, uses the best checkpoint, or else the last.
        input: image or folder of images, which are resized to the size of the model.
        label: index or name of the class of all images; null cycles through all classes.
        steps: number of optimization steps.
        starts: number of random latents. The optimization for an image starts from the best of these latents.
        prior: weight of the log density of the latents. A larger weight finds more typical images.
        seed: seed of the random latents.
        value_range: values of the input files that are mapped to black and white; null uses the range of the training
            data.
        max_pixels: maximum number of pixels of an input file; null sets no limit.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        output: output folder; null uses `generated/` in the run folder.

    Returns:
        The path of the grid, in which every projection follows its image. `projected.pt` in the same folder contains
        the latents (n, z).
    """
    refuse_below(1, steps=steps, starts=starts)
    source = find_checkpoint(checkpoint)
    folder = generated_folder(output, checkpoint, source)
    content = read_checkpoint(source)
    module = module_from(content, checkpoint)
    refuse_without_latents(module, checkpoint)
    path = output_file(folder / "projected.png")
    frame, paths = read_with(frame_of(content, module), value_range, max_pixels), images_at(input)
    targets = torch.cat([read_at(path, frame) for path in paths])
    labels = module.labels(len(targets), label)
    latents, distances = found_latents(
        module,
        targets,
        labels=labels,
        steps=steps,
        starts=starts,
        prior=prior,
        weights=weights,
        seed=seed,
        follow=partial(follow, "projecting", total=steps, size=lambda _: 1),
    )
    images = module.decode(latents, labels=labels, weights=weights).cpu()
    write_grid(torch.stack([targets, images], 1).flatten(0, 1), path, 2 * max(1, round((len(paths) / 2) ** 0.5)))
    torch.save(latents, folder / "projected.pt")
    print(f"{len(paths)} images, mean distance {distances.mean():.4f}: {path}")
    return path
