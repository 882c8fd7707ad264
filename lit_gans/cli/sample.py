"""`lit-gans sample checkpoint=PATH num=64`: a grid and single images of a checkpoint.

Examples:
    lit-gans sample checkpoint=outputs/dcgan_digits/version_0/checkpoints/last.ckpt
    lit-gans sample checkpoint=outputs/dcgan_digits/version_0 num=16 seed=3 output=pictures
    lit-gans sample checkpoint=outputs/pix2pix_digits/version_0 input=FOLDER
"""

from __future__ import annotations

import logging
import math
from pathlib import Path

from jaxtyping import Float
from torch import Tensor
from torchvision.utils import save_image

from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.common.errors import RefusedInput, refuse_above_64_bits, refuse_below
from lit_gans.common.memory import refuse_memory
from lit_gans.common.progress import Progress
from lit_gans.config.load import load
from lit_gans.config.run_folder import made_folder, refuse_folder, replacing_note, results_folder
from lit_gans.data.images import read_folder
from lit_gans.latents.truncation import truncated
from lit_gans.models.pix2pix import Pix2Pix
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.sampling import Weights

logger = logging.getLogger(__name__)

_MOST = 1_000_000  # images of one command


def sample(
    checkpoint: str,
    num: int = 64,
    seed: int = 0,
    label: int | None = None,
    input: str | None = None,
    truncation: float | None = None,
    weights: Weights | None = None,
    output: str | None = None,
) -> Path:
    """Writes generated images as PNG files and a grid; for points, a table and a plot. Replaces earlier ones.

    Args:
        checkpoint: path of a checkpoint, or folder of a run, which uses its best checkpoint, or the last if there is
            none; a folder of `lit-gans export`; zoo/NAME; or hf://owner/name.
        num: number of images.
        seed: seed of the latents.
        label: class of all images, for a model that was trained with classes; null cycles through all classes.
        input: folder of images to translate, for pix2pix; the output has as many images, with the same names.
        truncation: bound of the numbers of latents: a smaller one makes more typical images of less variety; null for
            none.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        output: output folder; null uses `generated/` in the run's folder.

    Returns:
        The path of the grid or plot.
    """
    refuse_numbers(seed, num)
    module, folder = loaded(checkpoint, output)
    module.labels(num, label)  # raises before anything is generated
    module.sampling_generator(weights)
    refuse_truncation(module, truncation)
    if isinstance(module, Pix2Pix):
        names, images = _translations(module, input, seed, weights)
    else:
        if input is not None:
            raise RefusedInput(f"input={input}: a {type(module).__name__} generates images from noise; leave it out.")
        refuse_many(module, num)
        logger.info("generating %s images", f"{num:,}")
        names = [f"{index:05d}" for index in range(num)]
        latents = truncated(module.latents(num, seed), truncation)
        images = module.decode(latents, labels=module.labels(num, label), weights=weights, seed=seed)
    made_folder(folder, "output")
    if module.image_size == 1:
        return _write_points(images, folder)
    columns = module.num_classes if label is None and 0 < module.num_classes <= num else math.ceil(len(images) ** 0.5)
    return _write_images(images, names, columns, folder)


def _translations(
    module: Pix2Pix, folder: str | None, seed: int, weights: Weights | None
) -> tuple[list[str], Float[Tensor, "n c h w"]]:
    """Returns the names and translations of the images in a folder."""
    if folder is None:
        raise RefusedInput("pix2pix translates images: add input=FOLDER.")
    paths, inputs = read_folder(folder, module.image_size, module.input_channels)
    logger.info("translating %s images", f"{len(paths):,}")
    translations = module.translate(inputs.float() / 255, seed=seed, weights=weights)
    names: list[str] = []
    for name in (path.stem for path in paths):
        while name in ("grid", *names):  # of another ending
            name += "_"
        names.append(name)
    return names, translations


def _write_images(images: Float[Tensor, "n c h w"], names: list[str], columns: int, folder: Path) -> Path:
    """Writes each image and a grid of all images; returns the path of the grid."""
    grid = folder / "grid.png"
    replaced = replacing_note(grid)
    others = len({path.stem for path in folder.glob("*.png")} - {*names, grid.stem})
    beside = f"; {others} other images stay there" if replaced and others else ""
    with Progress() as progress:
        rows = progress.follow("writing images", images.split(1), len(images))
        for name, image in zip(names, rows, strict=True):
            save_image(image[0], folder / f"{name}.png")
    save_image(images, grid, nrow=columns)
    print(f"{len(images)} images and their grid: {grid}{replaced}{beside}")
    return grid


def _write_points(points: Tensor, folder: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 4), layout="constrained")
    x, y = points.flatten(1).T.numpy()
    figure.add_subplot(aspect="equal").scatter(x, y, s=2)
    plot = folder / "points.png"
    replaced = replacing_note(plot)
    figure.savefig(plot)
    lines = [",".join(f"{value:.6g}" for value in point) for point in points.flatten(1).tolist()]
    (folder / "points.csv").write_text("\n".join(["x,y", *lines]) + "\n")
    print(f"{len(points)} points: {folder / 'points.csv'}, {plot}{replaced}")
    return plot


def loaded(checkpoint: str, output: str | None) -> tuple[AdversarialModule, Path]:
    """Returns the module of a checkpoint, and the output folder."""
    path = find_checkpoint(checkpoint)
    folder = Path(output) if output else results_folder(checkpoint, path) / "generated"
    refuse_folder(folder, "output")
    return load(path), folder


def maps_latents_to_images(module: AdversarialModule) -> bool:
    """Whether a module generates images from latents, rather than translations or points."""
    return not isinstance(module, Pix2Pix) and module.image_size != 1


def refuse_truncation(module: AdversarialModule, truncation: float | None) -> None:
    """Raises `RefusedInput` for a bound of latents where there are none."""
    if truncation is not None and isinstance(module, Pix2Pix):
        raise RefusedInput(f"truncation={truncation}: pix2pix has no latents; leave it out.")


def refuse_numbers(seed: int, num: int, steps: int = 1) -> None:
    """Raises `RefusedInput` for too few or too many images, and a seed that 64 bits do not hold."""
    refuse_below(1, num=num)
    if num * steps > _MOST:
        raise RefusedInput(f"{num * steps} images are too many at once: at most {_MOST}; use several seeds.")
    refuse_above_64_bits(seed=seed)


def refuse_many(module: AdversarialModule, num: int) -> None:
    """Raises `RefusedInput` for more images than memory holds."""
    needed = num * 4 * math.prod(module.image_shape)
    refuse_memory(needed, f"{num} images", "generate fewer at once, with several seeds")
