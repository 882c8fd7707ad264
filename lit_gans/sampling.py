"""`lit-gans sample` and `lit-gans interpolate`: pictures from a checkpoint."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torchvision.utils import save_image

from lit_gans.errors import RefusedInput
from lit_gans.loading import load
from lit_gans.models.generative import Weights


def sample(
    checkpoint: str, num: int = 64, seed: int = 0, weights: Weights | None = None, output: str | None = None
) -> Path:
    """Writes a grid and single PNGs of generated images.

    Args:
        checkpoint: path of the checkpoint.
        num: how many images.
        seed: of the latents.
        weights: `ema` or `raw`; null takes the averaged weights where there are some.
        output: folder; null is `generated/` in the run's folder.

    Returns:
        The path of the grid.
    """
    _at_least_one("num", num)
    images = load(checkpoint).sample(num, seed=seed, weights=weights)
    folder = _folder(checkpoint, output)
    for index, image in enumerate(images):
        save_image(image, folder / f"{index:05d}.png")
    grid = folder / "grid.png"
    save_image(images, grid, nrow=math.ceil(math.sqrt(num)))
    print(f"{num} images and their grid: {grid}")
    return grid


def interpolate(
    checkpoint: str,
    num: int = 8,
    steps: int = 10,
    seed: int = 0,
    weights: Weights | None = None,
    output: str | None = None,
) -> Path:
    """Writes a picture whose rows walk from one latent to another on the sphere (White 2016).

    Args:
        checkpoint: path of the checkpoint.
        num: rows.
        steps: images in a row, at least 2.
        seed: of the latents.
        weights: `ema` or `raw`; null takes the averaged weights where there are some.
        output: folder; null is `generated/` in the run's folder.

    Returns:
        The path of the picture.
    """
    _at_least_one("num", num)
    if steps < 2:
        raise RefusedInput(f"steps={steps} must be at least 2: the two ends.")
    module = load(checkpoint)
    start, end = module.latents(2 * num, seed).split(num)
    images = module.decode(slerp(start, end, steps).flatten(0, 1), weights=weights)
    path = _folder(checkpoint, output) / "interpolation.png"
    save_image(images, path, nrow=steps)
    print(f"{num} walks of {steps} images: {path}")
    return path


def slerp(start: Float[Tensor, "n z"], end: Float[Tensor, "n z"], steps: int) -> Float[Tensor, "n steps z"]:
    """Interpolates on the great circle between two latents, both ends included."""
    cosine = torch.nn.functional.cosine_similarity(start, end, dim=1)
    angle = cosine.clamp(-1 + 1e-6, 1 - 1e-6).acos()[:, None, None]
    share = torch.linspace(0, 1, steps, device=start.device)[None, :, None]
    return (((1 - share) * angle).sin() * start[:, None] + (share * angle).sin() * end[:, None]) / angle.sin()


def _at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise RefusedInput(f"{name}={value} must be at least 1.")


def _folder(checkpoint: str, output: str | None) -> Path:
    """Returns the folder for the pictures: beside `checkpoints/` of a run, else beside the checkpoint."""
    beside = Path(checkpoint).parent
    run = beside.parent if beside.name == "checkpoints" else beside
    folder = Path(output) if output else run / "generated"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
