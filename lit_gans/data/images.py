"""Converts decoded pictures and arrays of any number of channels and depth to images of one size.

A `picture` is an image as stored in a file; an `image` is an array of fixed size and number of channels.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped, UInt8
from PIL import Image
from torch import Tensor
from torch.nn import functional
from torchvision.utils import save_image

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size, sides, size_value
from lit_gans.data.decoding import IN_16_BITS, MAX_PIXELS, SEVERAL, Decoding, Picture, read_picture, values_of
from lit_gans.data.files import images_in

Crop = Literal["center", "none"] | Size
Background = tuple[int, int, int]
WHITE: Background = (255, 255, 255)
_RANGE_NOISE = 1e-4  # rounding of an image that was scaled to [0, 1]
Depth = Literal["uint8", "float32"]
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
RANGES = {"bool": (0, 1), "uint8": (0, 255), "uint16": (0, 65535)}  # of files; others have none of their own


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
        value_range: values of a file that become black and white; None takes 0 and 255, or 65535 for 16-bit files
            without a sign. Other files are refused without it.
        max_pixels: largest number of pixels of a file; None for no limit.
        keys: beginning of the keys that set these arguments, for error messages.
    """

    image_size: Size | None
    channels: int
    crop: Crop = "center"
    background: Background = WHITE
    dtype: Depth = "uint8"
    value_range: tuple[float, float] | None = None
    max_pixels: int | None = MAX_PIXELS
    keys: str = field(default="data.", repr=False)

    @property
    def decoding(self) -> Decoding:
        """How files are decoded for these images."""
        has_range = self.value_range is not None
        return Decoding(self.takes_values, self.max_pixels, self.keys, (self.channels,), has_range)

    @property
    def parts(self) -> tuple[slice, ...]:
        """Channels of color of what `fit` returns, without transparency."""
        return (slice(0, 3 if self.channels == 4 else self.channels),)

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
        if isinstance(picture, Image.Image):
            is_deep, is_known = picture.mode[0] in "IF", self.channels in _MODES
            picture = values_of(picture) if is_deep or not is_known else self._plain(picture, notes)
        if isinstance(picture, np.ndarray) or self.takes_values:
            return self._fit_values(np.asarray(picture), name, notes)
        box = self._box(*picture.size, name, notes)
        if box != (0, 0, *picture.size):
            # cuts; `resize` to another size would mix in pixels outside the box, and `crop` has a limit of pixels
            picture = picture.resize((box[2] - box[0], box[3] - box[1]), Image.Resampling.NEAREST, box)
        if self.image_size is not None and picture.size != sides(self.image_size)[::-1]:  # Pillow's order
            picture = picture.resize(sides(self.image_size)[::-1], Image.Resampling.BILINEAR)
        pixels = np.asarray(picture)
        return pixels.reshape(*pixels.shape[:2], self.channels).transpose(2, 0, 1).copy()

    def _plain(self, picture: Image.Image, notes: list[str]) -> Image.Image:
        """Converts a picture of 8 bits to grayscale, RGB or RGBA; transparent pictures are composited over
        `background`, unless images have 4 channels.
        """
        transparent = picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info
        if transparent and self.channels != 4:
            notes.append("transparent, composited over data.background")
            picture = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, (*self.background, 255)), picture)
        mode = _MODES[self.channels]
        if picture.mode == "P" and mode == "L":
            picture = picture.convert("RGB")
        return picture if picture.mode == mode else picture.convert(mode)

    def range_of(self, values: Shaped[np.ndarray, "..."], name: str) -> tuple[float, float]:
        """Returns the values that become black and white.

        Raises:
            RefusedInput: `value_range` is None, and the type of the values does not tell.
        """
        known = self.value_range or RANGES.get(values.dtype.name)
        if known is None:
            span = f"{values.min():.6g} to {values.max():.6g}"
            kind = {"f": "floating-point pixels", "i": "pixels with a sign"}.get(
                values.dtype.kind, "pixels of more than 16 bits"
            )
            raise RefusedInput(
                f"{name} has {values.dtype.name} values, here from {span}, whose range is unknown, as of all"
                f" {kind}: add {self.keys}value_range=[LOW,HIGH], the values that become black and white."
            )
        return known

    def _fit_values(
        self, values: Shaped[np.ndarray, "..."], name: str, notes: list[str]
    ) -> Shaped[np.ndarray, "c h w"]:
        if values.dtype.kind not in "biuf":
            raise RefusedInput(f"{name} has {values.dtype} values, expected integers or real numbers.")
        values = self._channels_last(values, name, notes)
        low, high = self.range_of(values, name)
        if not np.isfinite(values).all():
            raise RefusedInput(f"{name} has values that are not finite.")
        left, top, right, bottom = self._box(values.shape[1], values.shape[0], name, notes)
        # 32 bits hold integers of 16 bits exactly, but not the differences of larger ones
        computed = np.float32 if values.dtype.itemsize <= 2 else np.float64
        part = torch.from_numpy(values[top:bottom, left:right].astype(computed)).permute(2, 0, 1)[None]
        if self.image_size is not None and part.shape[-2:] != sides(self.image_size):
            part = functional.interpolate(part, sides(self.image_size), mode="bilinear", antialias=True)
        unit = (part[0].numpy() - computed(low)) / computed(high - low)
        if unit.min() < -_RANGE_NOISE or unit.max() > 1 + _RANGE_NOISE:
            notes.append(f"with values outside {self.keys}value_range, which are clipped")
        unit = unit.clip(0, 1).astype(np.float32)
        if len(unit) == 1 and self.channels in (3, 4):  # gray as colors, opaque
            unit = np.concatenate([unit] * 3 + [np.ones_like(unit)] * (self.channels - 3))
        if self.dtype == "float32":
            return unit * np.float32(2) - np.float32(1)
        if values.dtype != np.uint8:
            others = f"{values.dtype.name} values, scaled to 8 bits (data.dtype=float32 keeps them)"
            notes.append(IN_16_BITS if values.dtype.name == "uint16" else others)
        return (unit * 255).round().astype(np.uint8)

    def _channels_last(
        self, values: Shaped[np.ndarray, "..."], name: str, notes: list[str]
    ) -> Shaped[np.ndarray, "h w c"]:
        """Returns an array with as many channels as images have, or one gray channel for colors."""
        if values.ndim == 4 and values.shape[-1] == 1 and len(values) == self.channels:  # a page for each channel
            values = np.moveaxis(values[..., 0], 0, -1)
        elif values.ndim == 4:
            notes.append(SEVERAL)
            values = values[0]
        values = values[..., None] if values.ndim == 2 else values
        if values.shape[-1] == self.channels or (values.shape[-1] == 1 and self.channels in (3, 4)):
            return values
        if len(values) == self.channels and values.shape[-1] > 1:
            return np.moveaxis(values, 0, -1)
        advice = {
            2: "; if the second channel is transparency, convert the file to RGBA, and use data.channels=4",
            4: "; if the fourth channel is transparency, use data.channels=4",
        }
        raise RefusedInput(
            f"{name} has the shape {values.shape}, expected {self.channels} channels"
            f" (data.channels){advice.get(values.shape[-1], '')}."
        )

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
    def decoding(self) -> Decoding:
        """See `Frame`."""
        channels = self.first.channels, self.second.channels
        as_values = self.first.takes_values or self.second.takes_values
        return replace(self.first.decoding, as_values=as_values, channels=channels)

    @property
    def value_range(self) -> tuple[float, float] | None:
        """See `Frame`."""
        return self.first.value_range

    @property
    def parts(self) -> tuple[slice, ...]:
        """See `Frame`: those of both sides."""
        (first,), (second,) = self.first.parts, self.second.parts
        return first, slice(self.first.channels, self.first.channels + second.stop)

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


def read_image(path: Path, frame: Frame) -> Shaped[Tensor, "1 c h w"]:
    """Reads a file as an image.

    Raises:
        RefusedInput: see `read_picture` and `Frame.fit`.
    """
    return torch.from_numpy(frame.fit(read_picture(path, [], frame.decoding), str(path), []))[None]


def images_at(path: str | Path) -> list[Path]:
    """Returns a file as it is given, or the images in a folder; see `images_in`."""
    return [Path(path)] if os.path.isfile(path) else images_in(Path(path))


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
