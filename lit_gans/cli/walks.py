"""Walks through latents as files: a picture whose rows are the walks, or a video in which all walk at once."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torchvision.utils import make_grid

from lit_gans.common.video import is_video, refuse_video, write_video
from lit_gans.config.run_folder import output_file
from lit_gans.data.images import to_uint8, viewable, write_grid


def walks_file(output: str | None, folder: Path, name: str) -> Path:
    """Returns the path of a video, or of a picture in a folder, that a command will write.

    Raises:
        RefusedInput: it cannot be written.
    """
    if not is_video(output):
        return output_file(folder / name)
    refuse_video(str(output))
    return output_file(str(output))


def write_walks(walks: Float[Tensor, "n steps c h w"], path: Path, fps: int) -> str:
    """Writes walks as a picture, or as a video that goes to their ends and back; returns what a command says behind it.

    Args:
        walks: images in [0, 1].
        path: path of the file.
        fps: frames per second of a video.
    """
    if not is_video(path):
        write_grid(walks.flatten(0, 1), path, walks.shape[1])
        return ""
    columns = round(len(walks) ** 0.5)
    frames = [make_grid(viewable(images), nrow=columns)[: walks.shape[2]] for images in walks.transpose(0, 1)]
    there_and_back = [*frames, *frames[-2:0:-1]]  # so that it repeats without a jump
    write_video(to_uint8(torch.stack(there_and_back)), path, fps)
    return f", {len(there_and_back)} frames"
