"""Output folder of a command with a checkpoint, its module, and the input images of the module."""

from __future__ import annotations

import mimetypes
from dataclasses import replace
from pathlib import Path
from typing import Any

from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.common.errors import RefusedInput
from lit_gans.common.video import VIDEOS
from lit_gans.config.load import config_of, module_from
from lit_gans.config.run_folder import refuse_folder, results_folder
from lit_gans.data.base import ImageData
from lit_gans.data.images import WHITE, Frame
from lit_gans.latents.truncation import uses_length
from lit_gans.models.cyclegan import CycleGAN
from lit_gans.training.module import AdversarialModule
from lit_gans.training.translator import Direction, Translator


def generated_folder(output: str | None, checkpoint: str, path: Path) -> Path:
    """Returns the folder of the images that a command generates, by default `generated` in the folder of the run.

    Args:
        output: folder that the user specified, or None.
        checkpoint: checkpoint as the user specified it.
        path: path of the checkpoint.

    Raises:
        RefusedInput: If the output has the extension of an image or a video, and is no folder, or cannot be written.
    """
    kind, _ = mimetypes.guess_type(output or "")
    if kind is not None and kind.startswith(("image/", "video/")) and not Path(str(output)).is_dir():
        videos = " or ".join(VIDEOS)
        raise RefusedInput(f"output={output}: expected a folder; interpolate and directions also write {videos}.")
    folder = Path(output) if output else results_folder(checkpoint, path) / "generated"
    refuse_folder(folder, "output")
    return folder


def sampler(checkpoint: str, path: Path) -> AdversarialModule:
    """Returns the module of a checkpoint.

    Args:
        checkpoint: checkpoint as the user specified it.
        path: path of the checkpoint.

    Raises:
        RefusedInput: If the module does not generate images from latents.
    """
    module = module_from(read_checkpoint(path), checkpoint)
    refuse_without_latents(module, checkpoint)
    return module


def refuse_without_latents(module: AdversarialModule, source: object) -> None:
    """Raises `RefusedInput` for a module that translates images or generates points."""
    if isinstance(module, Translator) or module.image_size == 1:
        raise RefusedInput(f"{source}: expected a GAN that maps latents to images, not a {type(module).__name__}.")


def refuse_other_images(module: AdversarialModule, data: ImageData) -> None:
    """Raises `RefusedInput` if images of the data differ from generated images in their size or channels."""
    of_data, of_model = ("points" if size == 1 else "images" for size in (data.image_size, module.image_size))
    if of_data != of_model:
        raise RefusedInput(
            f"data= has {of_data}, and the checkpoint's model generates {of_model}: choose data= with {of_model}."
        )
    for name in ("image_size", "channels"):
        of_data, of_model = getattr(data, name), getattr(module, name)
        if of_data != of_model:
            raise RefusedInput(
                f"data.{name}={of_data} differs from the checkpoint's model, which has {of_model}: add"
                f" data.{name}={of_model}."
            )


def refuse_truncation(module: AdversarialModule, truncation: float | None) -> None:
    """Raises `RefusedInput` if truncation is requested, but a module has no latents, or normalizes their length."""
    if truncation is None:
        return
    if isinstance(module, Translator):
        raise RefusedInput(f"truncation={truncation}: {module.name} has no latents; leave out truncation=.")
    if not uses_length(module):
        raise RefusedInput(
            f"truncation={truncation}: the images of this {type(module).__name__} depend only on the direction of a"
            " latent, so truncation does not make them more typical; leave it out."
        )


def turn(module: AdversarialModule, direction: Direction) -> None:
    """Sets the direction in which a module translates.

    Raises:
        RefusedInput: If the module does not support the direction.
    """
    if direction == "b_to_a":
        if not isinstance(module, CycleGAN):
            raise RefusedInput(
                f"direction={direction}: a {type(module).__name__} does not translate back; leave out direction=."
            )
        module.exchange_domains()


def frame_of(content: dict[str, Any], module: AdversarialModule) -> Frame:
    """Returns the settings that convert files to input images of a checkpoint's module, without cropping.

    Args:
        content: contents of the checkpoint.
        module: module of the checkpoint.
    """
    data = config_of(content).get("data") or {}
    channels = module.input_channels if isinstance(module, Translator) else module.channels
    bounds = data.get("value_range")
    value_range = None if bounds is None else (float(bounds[0]), float(bounds[1]))
    return Frame(module.image_size, channels, "none", WHITE, data.get("dtype", "uint8"), value_range)


def read_with(frame: Frame, value_range: tuple[float, float] | None, max_pixels: int | None) -> Frame:
    """Returns the settings for reading input files, with some settings replaced by a command's arguments."""
    bounds = frame.value_range if value_range is None else (float(value_range[0]), float(value_range[1]))
    return replace(frame, value_range=bounds, max_pixels=max_pixels, keys="")
