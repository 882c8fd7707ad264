"""`lit-gans sample checkpoint=PATH num=64`: generates images from a checkpoint, and a grid of all images.

Examples:
    lit-gans sample checkpoint=outputs/dcgan_digits/version_0/checkpoints/last.ckpt
    lit-gans sample checkpoint=outputs/dcgan_digits/version_0 num=16 seed=3 output=pictures
    lit-gans sample checkpoint=outputs/pix2pix_digits/version_0 input=FOLDER
"""

from __future__ import annotations

import logging
import math
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional
from torchvision.utils import save_image

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.checkpoint import frame_of, generated_folder, read_with, refuse_truncation, turn
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.common.progress import follow
from lit_gans.config.load import config_of, module_from
from lit_gans.config.run_folder import output_file
from lit_gans.data.images import Frame, images_at, read_at, write_grid
from lit_gans.latents.truncation import truncated
from lit_gans.training.sampling import Weights
from lit_gans.training.translator import Direction, Translator

logger = logging.getLogger(__name__)


def sample(
    checkpoint: str,
    num: int | None = None,
    seed: int = 0,
    label: int | str | None = None,
    input: str | None = None,
    direction: Direction = "a_to_b",
    whole: bool | None = None,
    value_range: tuple[float, float] | None = None,
    max_pixels: int | None = 178_956_970,
    truncation: float | None = None,
    weights: Weights | None = None,
    output: str | None = None,
) -> Path:
    """Writes generated images as PNG files and a grid of all images. For points, writes a table and a plot.

    Existing files with the same names are overwritten. Images with 2 or more than 4 channels, and images of data with
    data.dtype=float32, are written as NPY files instead, because PNG does not support them. NPY files have shape (h, w,
    c) and dtype float32, with values in data.value_range, or in [0, 1] if data.value_range is not set.

    Args:
        checkpoint: path of a checkpoint, of a run folder or of a folder that `lit-gans export` wrote; zoo/NAME; or
            hf://owner/name. For a run folder, uses the best checkpoint, or else the last.
        num: number of images; null generates 64, or translates all of `input`.
        seed: seed of the latents.
        label: index or name of the class of all images; null cycles through all classes.
        input: image to translate or folder of images, for pix2pix and CycleGAN. Every output image has the name of its
            input image.
        direction: `b_to_a` translates images of the second domain to the first domain, for CycleGAN.
        whole: whether to translate full-size images; false resizes images to the size of the model; null translates
            full-size images if the model was trained on crops of larger images.
        value_range: values of the input files that are mapped to black and white; null uses the range of the training
            data.
        max_pixels: maximum number of pixels of an input file; null sets no limit.
        truncation: bound for the absolute values of latents. A smaller bound gives more typical and less diverse
            images. null sets no bound.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        output: output folder; null uses `generated/` in the run folder.

    Returns:
        The path of the grid or plot.
    """
    refuse_below(1, num=num)
    source = find_checkpoint(checkpoint)
    folder = generated_folder(output, checkpoint, source)
    content = read_checkpoint(source)
    module = module_from(content, checkpoint)
    module.labels(1, label)  # raises an error before any image is generated
    module.sampling_generator(weights)
    refuse_truncation(module, truncation)
    turn(module, direction)
    frame = frame_of(content, module)
    if isinstance(module, Translator):
        if whole is None:
            whole = (config_of(content).get("data") or {}).get("whole_size") is not None
        read = read_with(frame, value_range, max_pixels)
        names, images = _translations(module, input, num, folder, seed, weights, read, whole)
    else:
        reading = {"input": input, "value_range": value_range, "whole": whole}
        for key, value in reading.items():
            if value is not None:
                raise RefusedInput(
                    f"{key}={value}: a {type(module).__name__} generates images from noise; leave out {key}=."
                )
        num = 64 if num is None else num
        labels = module.labels(num, label)
        of_class = ""
        if label is not None and module.class_names:
            of_class = f" of {module.class_names[module.index_of_class(label)]}"
        logger.info("generating %s images%s", f"{num:,}", of_class)
        names = [f"{index:05d}" for index in range(num)]
        latents = truncated(module.latents(num, seed), truncation)
        images = [*module.decode(latents, labels=labels, weights=weights, seed=seed)]
    if module.image_size == 1:
        return _write_points(torch.stack(images), folder)
    has_every_class = label is None and 0 < module.num_classes <= len(images)
    columns = module.num_classes if has_every_class else math.ceil(len(images) ** 0.5)
    if has_every_class and module.class_names:
        logger.info("columns of the grid: %s", ", ".join(module.class_names))
    return _write_images(images, names, columns, folder, frame)


def _translations(
    module: Translator,
    folder: str | None,
    num: int | None,
    output: Path,
    seed: int,
    weights: Weights | None,
    frame: Frame,
    whole: bool,
) -> tuple[list[str], list[Float[Tensor, "c _ _"]]]:
    """Returns the names and translations of the first images in a folder, for the folder `output`."""
    if folder is None:
        raise RefusedInput(f"{module.name} translates images: add input=FOLDER.")
    paths = images_at(folder)[:num]
    if output.resolve() in {path.parent.resolve() for path in paths}:
        raise RefusedInput(f"output={output} is the folder of the input images, which might be replaced: use another.")
    names: list[str] = []
    for name in (path.stem for path in paths):
        while name in ("grid", *names):  # two files can have the same name with different suffixes
            name += "_"
        names.append(name)
    logger.info("translating %s images", f"{len(paths):,}")
    if not whole:
        pictures = torch.cat([read_at(path, frame) for path in paths])
        return names, [*module.translate(pictures, seed=seed, weights=weights)]
    # translates one image at a time, because images may have different sizes
    followed = follow("translating full-size images", paths, len(paths), size=lambda _: 1)
    return names, [module.translate(read_at(path, frame, whole), seed=seed, weights=weights)[0] for path in followed]


def _write_images(
    images: list[Float[Tensor, "c _ _"]], names: list[str], columns: int, folder: Path, frame: Frame
) -> Path:
    """Writes every image and a grid of all images, and returns the path of the grid."""
    grid = output_file(folder / "grid.png")
    is_npy = frame.dtype != "uint8" or len(images[0]) not in (1, 3, 4)
    low, high = frame.value_range or (0.0, 1.0)
    num_old = len({path.stem for path in folder.glob("*.npy" if is_npy else "*.png")} - {*names, grid.stem})
    old = f"; {num_old} other images stay there" if num_old else ""
    for name, image in zip(names, follow("writing images", images, len(images), size=lambda _: 1), strict=True):
        if is_npy:
            np.save(folder / f"{name}.npy", (image * (high - low) + low).permute(1, 2, 0).numpy())
        else:
            save_image(image, folder / f"{name}.png")
    write_grid(_of_one_size(images), grid, columns)
    print(f"{len(images)} images and their grid: {grid}{old}")
    if is_npy:
        print(
            f"the images are NPY files (height, width, {len(images[0])}) with values from {low:g} to {high:g}, because"
            " PNG does not support their channels and depth; the grid has 8 bits per channel"
        )
    return grid


def _of_one_size(images: list[Float[Tensor, "c _ _"]]) -> Float[Tensor, "n c h w"]:
    """Returns images in one tensor. Smaller images are padded with black to the size of the largest image."""
    height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
    return torch.stack([functional.pad(each, (0, width - each.shape[2], 0, height - each.shape[1])) for each in images])


def _write_points(points: Tensor, folder: Path) -> Path:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 4), layout="constrained")
    x, y = points.flatten(1).T.numpy()
    figure.add_subplot(aspect="equal").scatter(x, y, s=2)
    plot = output_file(folder / "points.png")
    figure.savefig(plot)
    lines = [",".join(f"{value:.6g}" for value in point) for point in points.flatten(1).tolist()]
    (folder / "points.csv").write_text("\n".join(["x,y", *lines]) + "\n", encoding="utf-8")
    print(f"{len(points)} points: {folder / 'points.csv'}, {plot}")
    return plot
