"""A film of several trainings side by side."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence

from jaxtyping import Float
from PIL import Image, ImageDraw
from torch import Tensor
from torchvision.transforms.functional import to_pil_image
from torchvision.utils import make_grid

_LABEL, _GAP = 14, 8  # pixels
_LAST = 2000  # milliseconds of the last frame


def encoded(images: Float[Tensor, "n c h w"], columns: int) -> str:
    """Returns a grid of images in [0, 1] as PNG in base64."""
    file = io.BytesIO()
    to_pil_image(make_grid(images.cpu().clamp(0, 1), columns)).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def film(runs: Mapping[str, Sequence[str]], milliseconds: int = 500) -> bytes:
    """Returns a GIF with the frames of all runs side by side, each below its name.

    Args:
        runs: frames of each run, from `encoded`, by name; the film is as long as the shortest.
        milliseconds: time of a frame; the last one stays for two seconds.
    """
    length = min(len(frames) for frames in runs.values())
    frames = [sheet({name: frames[index] for name, frames in runs.items()}) for index in range(length)]
    file = io.BytesIO()
    times = [milliseconds] * (length - 1) + [_LAST]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:], duration=times, loop=0)
    return file.getvalue()


def sheet(grids: Mapping[str, str]) -> Image.Image:
    """Returns several grids, from `encoded`, side by side, each below its name."""
    images = {name: Image.open(io.BytesIO(base64.b64decode(grid))).convert("RGB") for name, grid in grids.items()}
    width = sum(image.width + _GAP for image in images.values()) - _GAP
    drawn = Image.new("RGB", (width, _LABEL + max(image.height for image in images.values())), "white")
    pen, left = ImageDraw.Draw(drawn), 0
    for name, image in images.items():
        pen.text((left, 1), name, fill="black")
        drawn.paste(image, (left, _LABEL))
        left += image.width + _GAP
    return drawn
