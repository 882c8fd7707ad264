"""`lit-gans directions checkpoint=PATH`: what a generator can change: images along its strongest directions.

Examples:
    lit-gans directions checkpoint=outputs/dcgan_digits/version_0
    lit-gans directions checkpoint=outputs/dcgan_digits/version_0 num=8 reach=4 seed=3
    lit-gans directions checkpoint=outputs/dcgan_digits/version_0 steps=9 output=pictures
"""

from __future__ import annotations

from pathlib import Path

import torch
from torchvision.utils import save_image

from lit_gans.cli.sample import loaded, maps_latents_to_images, refuse_many, refuse_numbers
from lit_gans.common.errors import RefusedInput, refuse_not_positive
from lit_gans.config.run_folder import made_folder, replacing_note
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
) -> Path:
    """Writes an image whose rows move one latent along a direction, and the directions themselves.

    The directions need no labels (Shen and Zhou 2021); those that change the image most come first.

    Args:
        checkpoint: path of a checkpoint, or folder of a run, which uses its best checkpoint, or the last if there is
            none; a folder of `lit-gans export`; zoo/NAME; or hf://owner/name.
        num: number of directions.
        steps: number of images per row, at least 3; the middle one is that of the latent.
        reach: how far the ends of a row are from the latent.
        seed: seed of the latent.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        output: output folder; null uses `generated/` in the run's folder.

    Returns:
        The path of the image; `directions.pt` beside it holds the vectors (num, z).
    """
    refuse_numbers(seed, num, steps)
    refuse_not_positive(reach=reach)
    if steps < 3:
        raise RefusedInput(f"steps={steps} must be at least 3: both ends and the latent.")
    module, folder = loaded(checkpoint, output)
    if not maps_latents_to_images(module):
        raise RefusedInput(f"{checkpoint}: only a generator of images from latents has directions.")
    refuse_many(module, num * steps)
    vectors, _ = found_directions(module, num, module.sampling_generator(weights))
    amounts = torch.linspace(-reach, reach, steps)
    latents = module.latents(1, seed) + amounts[None, :, None] * vectors[:, None, :]
    labels = torch.zeros(num * steps, dtype=torch.long) if module.num_classes else None
    images = module.decode(latents.flatten(0, 1), labels=labels, weights=weights)
    path = made_folder(folder, "output") / "directions.png"
    replaced = replacing_note(path)
    save_image(images, path, nrow=steps)
    torch.save(vectors, folder / "directions.pt")
    print(f"{num} directions, {steps} images each: {path}{replaced}")
    return path
