"""Reader of image files: converts any file that Pillow opens to uint8 at one size, or reports its path and the error.

A `picture` is a Pillow image as stored in a file; an `image` is an array of fixed size and number of channels.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image, ImageOps
from torch import Tensor

from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.common.size import Size, sides, size_value

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
Crop = Literal["center", "none"] | Size
Background = tuple[int, int, int]
WHITE: Background = (255, 255, 255)
_RANGE_NOISE = 1e-4  # rounding of an image that was scaled to [0, 1]
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}


@dataclass(frozen=True)
class Frame:
    """Converts pictures to images of one size: crops, then resizes (bilinear, antialiased).

    Args:
        image_size: height and width of the images: one number for squares, or both.
        channels: 1 for grayscale, 3 for RGB, 4 for RGBA.
        crop: `center` crops to the largest central part with the aspect ratio of the images, a number to the central
            square of that many pixels, [height, width] to a central rectangle; `none` does not crop. Where the aspect
            ratio is not that of the images, it changes.
        background: red, green and blue, 0 to 255, of the background of transparent pictures, for 1 and 3 channels.
    """

    image_size: Size
    channels: int
    crop: Crop = "center"
    background: Background = WHITE

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what `fit` returns."""
        return self.channels, *sides(self.image_size)

    def fit(self, picture: Image.Image, name: str) -> tuple[UInt8[np.ndarray, "c h w"], list[str]]:
        """Returns an image and notes for the user about its conversion.

        Args:
            picture: decoded picture.
            name: name of the picture, for error messages.

        Raises:
            RefusedInput: the picture is smaller than the crop, or the crop is empty.
        """
        notes: list[str] = []
        picture = plain(picture, self.channels, self.background, name, notes)
        width, height = picture.size
        size = sides(self.image_size)[::-1]  # Pillow's order
        box = self._box(width, height, name)
        if box[2] - box[0] < size[0] or box[3] - box[1] < size[1]:
            notes.append("smaller than image_size, enlarged")
        picture = picture.crop(box)  # `resize(box=...)` would mix in pixels outside the box
        if picture.size != size:
            picture = picture.resize(size, Image.Resampling.BILINEAR)
        return _array(picture, self.channels), notes

    def _box(self, width: int, height: int, name: str) -> tuple[int, int, int, int]:
        if self.crop == "none":
            return 0, 0, width, height
        if isinstance(self.crop, str):  # center
            rows, columns = sides(self.image_size)
            rows, columns = min(height, max(1, width * rows // columns)), min(width, max(1, height * columns // rows))
        else:
            rows, columns = sides(self.crop)
        if not (1 <= rows <= height and 1 <= columns <= width):  # beyond, Pillow would add black pixels
            raise RefusedInput(
                f"{name} is {width}x{height} pixels: crop={size_value((rows, columns))} must be at least 1,"
                f" and at most {height} high and {width} wide."
            )
        left, top = (width - columns) // 2, (height - rows) // 2
        return left, top, left + columns, top + rows


def open_picture(source: Path | bytes, name: str, notes: list[str]) -> Image.Image:
    """Decodes a picture in its upright orientation; reads the first frame of an animation.

    Args:
        source: path of a file or its content.
        name: name of the picture, for error messages.
        notes: list to which notes for the user are appended.

    Raises:
        RefusedInput: Pillow cannot read the picture; the message names path and reason.
    """
    file = io.BytesIO(source) if isinstance(source, bytes) else source
    with refusing(f"{name} cannot be read as an image"), Image.open(file) as picture:
        if getattr(picture, "n_frames", 1) > 1:  # which only some formats have
            notes.append("animated or of several pages, first one used")
        picture.load()
        ImageOps.exif_transpose(picture, in_place=True)  # in place, without a copy if nothing is transposed
    return picture


def plain(picture: Image.Image, channels: int, background: Background, name: str, notes: list[str]) -> Image.Image:
    """Converts a picture to 8-bit grayscale, RGB or RGBA.

    16-bit values are scaled, not clipped; transparent pictures are composited over `background` unless `channels` is 4.

    Raises:
        RefusedInput: the picture has floating-point pixels, whose range is unknown.
    """
    if picture.mode == "F":
        raise RefusedInput(f"{name} has floating-point pixels, whose range is unknown: save it with 8 or 16 bits.")
    if picture.mode.startswith("I"):
        notes.append("16 bits, scaled to 8")
        values = np.asarray(picture).astype(np.float64).clip(0, 65535)
        picture = Image.fromarray((values / 257).round().astype(np.uint8))
    transparent = picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info
    if transparent and channels != 4:
        notes.append("transparent, composited over data.background")
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, (*background, 255)), picture)
    mode = _MODES[channels]
    if picture.mode == "P" and mode == "L":
        picture = picture.convert("RGB")
    return picture if picture.mode == mode else picture.convert(mode)


def _array(picture: Image.Image, channels: int) -> UInt8[np.ndarray, "c h w"]:
    pixels = np.asarray(picture)
    return pixels.reshape(*pixels.shape[:2], channels).transpose(2, 0, 1).copy()


def read_image(path: Path, channels: int, background: Background = WHITE) -> UInt8[Tensor, "1 c h w"]:
    """Reads a file as grayscale (1), RGB (3) or RGBA (4), at its original size.

    Raises:
        RefusedInput: the file cannot be read; the message names path and reason.
    """
    notes: list[str] = []
    picture = plain(open_picture(path, str(path), notes), channels, background, str(path), notes)
    return torch.from_numpy(_array(picture, channels))[None]


def images_in(folder: Path, nested: bool = False) -> list[Path]:
    """Returns the files in a folder with an image extension, sorted; includes broken links, excludes hidden files.

    Args:
        folder: path of the folder.
        nested: whether to include the files in all subfolders.

    Raises:
        RefusedInput: the folder does not exist, cannot be opened, or contains no images.
    """

    def refuse(error: OSError) -> None:
        raise RefusedInput(f"{error.filename} cannot be opened: {error.strerror}.") from error

    if not folder.is_dir():
        raise RefusedInput(f"{folder}: there is no such folder; give one that contains images.")
    found = []
    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        folders[:] = [name for name in folders if nested and not name.startswith(".")]
        found += [Path(place, name) for name in names if name.lower().endswith(ENDINGS) and not name.startswith(".")]
    if not found:
        raise RefusedInput(f"{folder} contains no images ({', '.join(ENDINGS)}).")
    return sorted(found)


def read_folder(folder: str | Path, image_size: Size, channels: int) -> tuple[list[Path], UInt8[Tensor, "n c h w"]]:
    """Reads all images of a folder, sorted by name, uncropped, at one size.

    Raises:
        RefusedInput: the folder does not exist or contains no images.
    """
    paths, frame = images_in(Path(folder)), Frame(image_size, channels, "none")
    images = [frame.fit(open_picture(path, str(path), []), str(path))[0] for path in paths]
    return paths, torch.from_numpy(np.stack(images))


def to_uint8(images: Float[Tensor, "n c h w"]) -> UInt8[Tensor, "n c h w"]:
    """Rounds images in [0, 1] to uint8.

    Raises:
        FloatingPointError: an image is not finite, so the training has diverged.
        RefusedInput: values are outside [0, 1] and would wrap around or be clipped silently.
    """
    if not torch.isfinite(images).all():
        raise FloatingPointError("generated images are not finite: the training has diverged.")
    refuse_out_of_range(images)
    return images.mul(255).round().clamp(0, 255).to(torch.uint8)


def refuse_out_of_range(images: Float[Tensor, "n c h w"]) -> None:
    """Raises `RefusedInput` if values are outside [0, 1], except for rounding; NaN passes."""
    low, high = (bound.item() for bound in images.aminmax()) if images.numel() else (0, 1)
    if low < -_RANGE_NOISE or high > 1 + _RANGE_NOISE:
        raise RefusedInput(
            f"images have values in [{low:.3g}, {high:.3g}], expected [0, 1]: rescale the output of a tanh with"
            " (x + 1) / 2."
        )
