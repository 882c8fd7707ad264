"""Walks through latents as files: a picture whose rows are the walks, or a video in which all walk at once."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torchvision.utils import make_grid

from lit_gans.common.video import is_video, refuse_video, write_video
from lit_gans.config.run_folder import made_folder, refuse_file, replacing_note
from lit_gans.data.images import to_uint8, viewable, write_grid


def refuse_walks(output: str | None) -> None:
    """Raises `RefusedInput` if the output is a video that cannot be written."""
    if is_video(output):
        refuse_file(str(output), "output")
        refuse_video(str(output))


def write_walks(
    walks: Float[Tensor, "n steps c h w"], output: str | None, folder: Path, name: str, fps: int
) -> tuple[Path, str]:
    """Writes walks as a picture in a folder, or as a video that goes to their ends and back.

    Args:
        walks: images in [0, 1].
        output: path of the video; anything else is a folder.
        folder: folder of the picture.
        name: name of the picture.
        fps: frames per second of a video.

    Returns:
        The path of the file, and what a command says behind it.
    """
    path = Path(str(output)) if is_video(output) else made_folder(folder, "output") / name
    made_folder(path.parent, "output")
    replaced = replacing_note(path)
    if not is_video(output):
        write_grid(walks.flatten(0, 1), path, walks.shape[1])
        return path, replaced
    columns = round(len(walks) ** 0.5)
    frames = [make_grid(viewable(images), nrow=columns)[: walks.shape[2]] for images in walks.transpose(0, 1)]
    there_and_back = [*frames, *frames[-2:0:-1]]  # so that it repeats without a jump
    write_video(to_uint8(torch.stack(there_and_back)), path, fps)
    return path, f", {len(there_and_back)} frames{replaced}"
