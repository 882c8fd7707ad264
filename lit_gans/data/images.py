"""Reader of image files: converts any file that Pillow opens, and arrays of any number of channels and depth, to images
of one size, or reports its path and the error.

A `picture` is a Pillow image as stored in a file; an `image` is an array of fixed size and number of channels.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8
from PIL import Image, ImageFile, ImageOps
from torch import Tensor
from torch.nn import functional
from torchvision.utils import save_image

from lit_gans.common.errors import RefusedInput, import_extra, refusing
from lit_gans.common.size import Size, sides, size_value

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
ARRAYS = (".npy",)
Crop = Literal["center", "none"] | Size
Background = tuple[int, int, int]
Picture = Image.Image | np.ndarray
WHITE: Background = (255, 255, 255)
_RANGE_NOISE = 1e-4  # rounding of an image that was scaled to [0, 1]
Depth = Literal["uint8", "float32"]
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_RANGES = {"bool": (0, 1), "uint8": (0, 255), "uint16": (0, 65535)}  # of files; others have none of their own


@dataclass(frozen=True)
class Frame:
    """Converts pictures to images of one size: crops, then resizes (bilinear, antialiased).

    Args:
        image_size: height and width of the images: one number for squares, or both; None does not resize.
        channels: 1 for grayscale, 3 for RGB, 4 for RGBA, any other number for arrays.
        crop: `center` crops to the largest central part with the aspect ratio of the images, a number to the central
            square of that many pixels, [height, width] to a central rectangle; `none` does not crop. Where the aspect
            ratio is not that of the images, it changes.
        background: red, green and blue, 0 to 255, of the background of transparent pictures, for 1 and 3 channels.
        dtype: `uint8`, or `float32` for images in [-1, 1] that keep the depth of 16-bit and floating-point files.
        value_range: values of a file that become black and white; None takes 0 and 255, or 65535 for 16-bit files.
    """

    image_size: Size | None
    channels: int
    crop: Crop = "center"
    background: Background = WHITE
    dtype: Depth = "uint8"
    value_range: tuple[float, float] | None = None

    @property
    def takes_values(self) -> bool:
        """Whether images are made from the values of files as they are stored, rather than from 8-bit pictures."""
        return self.dtype != "uint8" or self.value_range is not None or self.channels not in _MODES

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what `fit` returns."""
        assert self.image_size is not None
        return self.channels, *sides(self.image_size)

    def fit(self, picture: Picture, name: str, notes: list[str]) -> Shaped[np.ndarray, "c h w"]:
        """Returns an image.

        Args:
            picture: decoded picture, or values (h, w), (h, w, c) or (c, h, w).
            name: name of the picture, for error messages.
            notes: list to which notes for the user about the conversion are appended.

        Raises:
            RefusedInput: the picture is smaller than the crop, or the crop is empty; or values have another number of
                channels, an unknown range, or are not finite.
        """
        if self.takes_values or isinstance(picture, np.ndarray):
            return self._fit_values(values_of(picture), name, notes)
        picture = self._plain(picture, name, notes)
        # `resize(box=...)` would mix in pixels outside the box
        picture = picture.crop(self._box(*picture.size, name, notes))
        if self.image_size is not None and picture.size != sides(self.image_size)[::-1]:  # Pillow's order
            picture = picture.resize(sides(self.image_size)[::-1], Image.Resampling.BILINEAR)
        pixels = np.asarray(picture)
        return pixels.reshape(*pixels.shape[:2], self.channels).transpose(2, 0, 1).copy()

    def _plain(self, picture: Image.Image, name: str, notes: list[str]) -> Image.Image:
        """Converts a picture to 8-bit grayscale, RGB or RGBA.

        16-bit values are scaled, not clipped; transparent pictures are composited over `background`, unless images have
        4 channels.
        """
        if picture.mode == "F":
            raise RefusedInput(
                f"{name} has floating-point pixels, whose range is unknown: add data.value_range=[LOW,HIGH], the values"
                " that become black and white."
            )
        if picture.mode.startswith("I"):
            notes.append("16 bits, scaled to 8")
            values = np.asarray(picture).astype(np.float64).clip(0, 65535)
            picture = Image.fromarray((values / 257).round().astype(np.uint8))
        transparent = picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info
        if transparent and self.channels != 4:
            notes.append("transparent, composited over data.background")
            picture = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, (*self.background, 255)), picture)
        mode = _MODES[self.channels]
        if picture.mode == "P" and mode == "L":
            picture = picture.convert("RGB")
        return picture if picture.mode == mode else picture.convert(mode)

    def _fit_values(
        self, values: Shaped[np.ndarray, "..."], name: str, notes: list[str]
    ) -> Shaped[np.ndarray, "c h w"]:
        values = values[..., None] if values.ndim == 2 else values
        if values.ndim != 3 or self.channels not in (values.shape[0], values.shape[-1]):
            raise RefusedInput(
                f"{name} has the shape {values.shape}, expected {self.channels} channels (data.channels)."
            )
        if values.shape[-1] != self.channels:
            values = np.moveaxis(values, 0, -1)
        known = self.value_range or _RANGES.get(str(values.dtype))
        if known is None:
            span = f"{values.min():.6g} to {values.max():.6g}"
            raise RefusedInput(
                f"{name} has {values.dtype} values, here from {span}, whose range is unknown: add"
                " data.value_range=[LOW,HIGH], the values that become black and white."
            )
        low, high = known
        if not np.isfinite(values).all():
            raise RefusedInput(f"{name} has values that are not finite.")
        left, top, right, bottom = self._box(values.shape[1], values.shape[0], name, notes)
        part = torch.from_numpy(values[top:bottom, left:right].astype(np.float32)).permute(2, 0, 1)[None]
        if self.image_size is not None and part.shape[-2:] != sides(self.image_size):
            part = functional.interpolate(part, sides(self.image_size), mode="bilinear", antialias=True)
        unit = (part[0].numpy() - low) / (high - low)
        if unit.min() < -_RANGE_NOISE or unit.max() > 1 + _RANGE_NOISE:
            notes.append("with values outside data.value_range, which are clipped")
        unit = unit.clip(0, 1)
        if self.dtype == "float32":
            return unit * np.float32(2) - np.float32(1)
        if values.dtype != np.uint8:
            notes.append(f"{values.dtype} values, scaled to 8 bits (data.dtype=float32 keeps them)")
        return (unit * 255).round().astype(np.uint8)

    def _box(self, width: int, height: int, name: str, notes: list[str]) -> tuple[int, int, int, int]:
        high, wide = (height, width) if self.image_size is None else sides(self.image_size)
        rows, columns = height, width
        if self.crop == "center":
            rows, columns = min(rows, max(1, columns * high // wide)), min(columns, max(1, rows * wide // high))
        elif not isinstance(self.crop, str):
            rows, columns = sides(self.crop)
        if not (1 <= rows <= height and 1 <= columns <= width):  # beyond, Pillow would add black pixels
            raise RefusedInput(
                f"{name} is {width}x{height} pixels: crop={size_value((rows, columns))} must be at least 1,"
                f" and at most {height} high and {width} wide."
            )
        if rows < high or columns < wide:
            notes.append("smaller than image_size, enlarged")
        left, top = (width - columns) // 2, (height - rows) // 2
        return left, top, left + columns, top + rows


@dataclass(frozen=True)
class PairFrame:
    """Converts the two sides of a pair, of one size and depth, to one image with the channels of both."""

    first: Frame
    second: Frame

    @property
    def dtype(self) -> Depth:
        """See `Frame`."""
        return self.first.dtype

    @property
    def takes_values(self) -> bool:
        """See `Frame`."""
        return self.first.takes_values or self.second.takes_values

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what `fit` returns."""
        channels, height, width = self.first.shape
        return channels + self.second.channels, height, width

    def fit(self, pictures: tuple[Picture, Picture], name: str, notes: list[str]) -> Shaped[np.ndarray, "c h w"]:
        """Returns an image, and notes what is true of either side once; see `Frame.fit`."""
        of_sides: list[str] = []
        images = [self.first.fit(pictures[0], name, of_sides), self.second.fit(pictures[1], name, of_sides)]
        notes += sorted({*of_sides})
        return np.concatenate(images)


def values_of(picture: Picture) -> Shaped[np.ndarray, "..."]:
    """Returns the values of a decoded picture as they are stored; those of a palette as colors."""
    if isinstance(picture, np.ndarray):
        return picture
    if picture.mode == "P":
        picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
    return np.asarray(picture.convert("RGB") if picture.mode in ("CMYK", "YCbCr", "HSV", "LAB") else picture)


def read_picture(path: Path, as_values: bool, notes: list[str]) -> Picture:
    """Reads an array of NumPy, or any picture that Pillow opens.

    Args:
        path: path of the file.
        as_values: whether to read TIFF files of any number of channels, and PNG files with colors of 16 bits, with the
            depth and the channels that they have (extra `depth`), rather than as pictures.
        notes: list to which notes for the user are appended.

    Raises:
        RefusedInput: the file cannot be read; the message names path and reason.
    """
    ending = path.suffix.lower()
    with refusing(f"{path} cannot be read as an image"):
        if ending in ARRAYS:
            return np.load(path, allow_pickle=False)
        if as_values and ending in (".tif", ".tiff"):
            return import_extra("tifffile", "depth").imread(path)
        if as_values and ending == ".png":
            with Image.open(path) as picture:
                deep = _is_reduced(picture)
            if deep:
                with path.open("rb") as file:
                    width, height, rows, about = import_extra("png", "depth").Reader(file=file).asDirect()
                    return np.array([*map(np.uint16, rows)]).reshape(height, width, about["planes"])
    return open_picture(path, str(path), notes)


def _is_reduced(picture: ImageFile.ImageFile) -> bool:
    """Whether a file has colors of 16 bits, which Pillow reduces to 8; it reads gray ones as they are."""
    return any(";16" in str(part) for part in picture.tile) and not picture.mode.startswith("I")


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
        if _is_reduced(picture):
            notes.append("16 bits, scaled to 8")  # by Pillow
        picture.load()
        ImageOps.exif_transpose(picture, in_place=True)  # in place, without a copy if nothing is transposed
    return picture


def read_image(path: Path, frame: Frame) -> Shaped[Tensor, "1 c h w"]:
    """Reads a file as an image.

    Raises:
        RefusedInput: see `read_picture` and `Frame.fit`.
    """
    return torch.from_numpy(frame.fit(read_picture(path, frame.takes_values, []), str(path), []))[None]


def images_in(folder: Path, nested: bool = False, endings: tuple[str, ...] = (*PICTURES, *ARRAYS)) -> list[Path]:
    """Returns the images and arrays in a folder, sorted; includes broken links, excludes hidden files.

    Args:
        folder: path of the folder.
        nested: whether to include the files in all subfolders.
        endings: extensions of images.

    Raises:
        RefusedInput: the folder does not exist, cannot be opened, or contains no images.
    """

    def refuse(error: OSError) -> None:
        raise RefusedInput(f"{error.filename} cannot be opened: {error.strerror}.") from error

    if not folder.is_dir():
        raise RefusedInput(f"{folder}: there is no such folder; give one that contains images.")
    found = []
    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        # not hidden ones, nor packed images, which are arrays
        folders[:] = [name for name in folders if nested and not name.startswith(".") and ".packed" not in name]
        found += [Path(place, name) for name in names if name.lower().endswith(endings) and not name.startswith(".")]
    if not found:
        raise RefusedInput(f"{folder} contains no images ({', '.join(endings)}).")
    return sorted(found)


def images_at(path: str | Path) -> list[Path]:
    """Returns a file as it is given, or the images in a folder; see `images_in`."""
    return [Path(path)] if Path(path).is_file() else images_in(Path(path))


def read_at(path: Path, frame: Frame, whole: bool = False) -> Float[Tensor, "1 c h w"]:
    """Reads a file as an image in [0, 1], at its own size if it is taken whole."""
    return to_unit_range(read_image(path, replace(frame, image_size=None) if whole else frame))


def to_networks(images: Shaped[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Maps images of a source to [-1, 1]: uint8, or floats, which are in that range already."""
    return images if images.is_floating_point() else images.float() / 127.5 - 1


def to_unit_range(images: Shaped[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Maps images of a source to [0, 1]: uint8, or floats in [-1, 1]."""
    return (images + 1) / 2 if images.is_floating_point() else images.float() / 255


def viewable(images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n v h w2"]:
    """Returns images that a PNG can show: gray, RGB and RGBA; the channels of others side by side, in gray."""
    if images.shape[1] in _MODES:
        return images
    return images.transpose(1, 2).flatten(2)[:, None]


def write_grid(images: Float[Tensor, "n c h w"], path: Path, columns: int) -> None:
    """Writes a grid of images in [0, 1] as a picture; see `viewable`."""
    save_image(viewable(images), path, nrow=columns)


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
