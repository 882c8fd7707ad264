"""`lit-gans scale checkpoint=PATH input=FOLDER`: computes the scaling factor of an autoencoder's latents.

Examples:
    lit-gans scale checkpoint=outputs/autoencoder_kl_emoji/version_0 input=FOLDER
    lit-gans scale checkpoint=outputs/autoencoder_kl_emoji/version_0 input=FOLDER weights=raw
    lit-gans scale checkpoint=outputs/autoencoder_kl_emoji/version_0 input=FOLDER batch_size=4 max_pixels=null
"""

from __future__ import annotations

from typing import cast

import torch

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.checkpoint import frame_of, read_with
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.modes import evaluating
from lit_gans.common.noise import Noise
from lit_gans.common.progress import follow
from lit_gans.config.load import module_from
from lit_gans.data.images import images_at, read_at
from lit_gans.models.autoencoder_kl import AutoencoderKL
from lit_gans.networks.autoencoder import Autoencoder
from lit_gans.training.sampling import Weights


def scale(
    checkpoint: str,
    input: str,
    batch_size: int = 32,
    seed: int = 0,
    value_range: tuple[float, float] | None = None,
    max_pixels: int | None = 178_956_970,
    weights: Weights | None = None,
) -> dict[str, float]:
    """Computes the mean and the standard deviation of an autoencoder's latents for a folder of images.

    A diffusion model is trained on latents with a standard deviation of 1. It subtracts the shift factor from the
    latents and multiplies them by the scaling factor. The scaling factor is 1 / standard deviation (Rombach et al.
    2022, appendix G), and the shift factor is the mean. Stable Diffusion has the scaling factor 0.18215 and no shift
    factor.

    Args:
        checkpoint: path of a checkpoint, of a run folder or of a folder that `lit-gans export` wrote. For a run folder,
            uses the best checkpoint, or else the last.
        input: folder of images, also in subfolders. They are resized to the size of the model.
        batch_size: number of images that are encoded at once.
        seed: seed of the noise with which latents are sampled.
        value_range: values of the files that are mapped to black and white; null uses the range of the training data.
        max_pixels: maximum number of pixels of a file; null sets no limit.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.

    Returns:
        `scaling_factor` and `shift_factor`.

    Raises:
        RefusedInput: If the checkpoint is not an autoencoder, or there are no images.
    """
    refuse_below(1, batch_size=batch_size)
    content = read_checkpoint(find_checkpoint(checkpoint))
    module = module_from(content, checkpoint)
    if not isinstance(module, AutoencoderKL):
        raise RefusedInput(
            f"{checkpoint}: expected an autoencoder (model=autoencoder_kl), not a {type(module).__name__}."
        )
    frame, paths = read_with(frame_of(content, module), value_range, max_pixels), images_at(input, nested=True)
    network = cast(Autoencoder, module.sampling_generator(weights))
    sums = torch.zeros(3, dtype=torch.float64)  # number, sum and sum of squares of the latents
    starts = range(0, len(paths), batch_size)
    for start in follow("encoding images", starts, len(paths), size=lambda _: batch_size):
        images = torch.cat([read_at(path, frame) for path in paths[start : start + batch_size]])
        with torch.no_grad(), evaluating(network):
            noise = module.sample_noise(Noise(torch.Generator(), (seed, start)), len(images)).get("posterior")
            latents = network.bottleneck(network.encoder(module.to_generator(images * 2 - 1)), noise).latents.double()
        sums += torch.stack([torch.tensor(latents.numel()), latents.sum(), latents.square().sum()])
    mean = sums[1] / sums[0]
    deviation = (sums[2] / sums[0] - mean.square()).sqrt()
    found = {"scaling_factor": 1 / deviation.item(), "shift_factor": mean.item()}
    print(f"latents of {len(paths):,} images: mean {mean:.4f}, standard deviation {deviation:.4f}")
    print(
        f"scaling_factor={found['scaling_factor']:.5f} shift_factor={found['shift_factor']:.5f}: add both to"
        " lit-gans export format=diffusers"
    )
    return found
