"""Writes latent walks to an image with one walk per row, or to a video of all walks."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torchvision.utils import make_grid

from lit_gans.cli.checkpoint import generated_folder
from lit_gans.common.video import is_video, refuse_video, write_video
from lit_gans.config.run_folder import output_file
from lit_gans.data.images import to_uint8, viewable, write_grid


def walks_file(output: str | None, checkpoint: str, path: Path, name: str, fps: int) -> Path:
    """Returns the path of the file that a command will write.

    Args:
        output: path of a video, or folder of an image; None uses the folder of the run.
        checkpoint: checkpoint as the user specified it.
        path: path of the checkpoint.
        name: file name of the image.
        fps: frames per second of the video.

    Raises:
        RefusedInput: If the file cannot be written, or if the frames per second are out of range.
    """
    if not is_video(output):
        return output_file(generated_folder(output, checkpoint, path) / name)
    refuse_video(str(output), fps)
    return output_file(str(output))


def write_walks(walks: Float[Tensor, "n steps c h w"], path: Path, fps: int) -> str:
    """Writes walks as an image, or as a video that plays every walk forwards and then backwards.

    Args:
        walks: images in [0, 1].
        path: path of the file.
        fps: frames per second of a video.

    Returns:
        A suffix for the command's output with the number of frames; empty for an image.
    """
    if not is_video(path):
        write_grid(walks.flatten(0, 1), path, walks.shape[1])
        return ""
    columns = round(len(walks) ** 0.5)
    frames = [make_grid(viewable(images), nrow=columns)[: walks.shape[2]] for images in walks.transpose(0, 1)]
    loop = [*frames, *frames[-2:0:-1]]  # the last frame leads to the first, so that the video repeats without a jump
    write_video(to_uint8(torch.stack(loop)), path, fps)
    return f", {len(loop)} frames"
