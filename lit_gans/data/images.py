"""Converts decoded files, with any number of channels and any bit depth, to images of a single size.

In identifiers, `picture` means a decoded file of any size, and `image` means an array with a fixed size and a fixed
number of channels.
"""

from __future__ import annotations

import math
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
from lit_gans.data.archives import is_archive
from lit_gans.data.decoding import IN_16_BITS, MAX_PIXELS, SEVERAL, Decoding, Picture, read_picture, values_of
from lit_gans.data.files import images_in

Crop = Literal["center", "none"] | Size
Background = tuple[int, int, int]
WHITE: Background = (255, 255, 255)
_RANGE_NOISE = 1e-4  # tolerance for rounding errors of images that were scaled to [0, 1]
_REDUCED = 32  # size in pixels of `reduced` images, so that small details such as noise do not affect distances
Depth = Literal["uint8", "float32"]
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
RANGES = {"bool": (0, 1), "uint8": (0, 255), "uint16": (0, 65535)}  # value range by type; other types have no default


@dataclass(frozen=True)
class Frame:
    """Converts decoded files to images of a single size: crops, then resizes (bilinear, antialiased).

    Args:
        image_size: height and width of the images: one number for square images, or (height, width). None does not
            resize.
        channels: 1 for grayscale, 3 for RGB, 4 for RGBA, or any other number of channels for arrays.
        crop: `center` crops the largest central region that has the aspect ratio of the images. A number crops a
            central square of that side length in pixels, and [height, width] crops a central rectangle. `none` does
            not crop. If the cropped region has another aspect ratio than the images, resizing distorts it.
        background: color behind transparent pixels (red, green, blue), each from 0 to 255. Used only for 1 and 3
            channels.
        dtype: `uint8`, or `float32` for images in [-1, 1], which keep the depth of 16-bit and floating-point files.
        value_range: stored values that become black and white. None uses 0 and 255 for 8-bit files, and 0 and 65535
            for unsigned 16-bit files; all other types of values then raise an error.
        max_pixels: maximum number of pixels of a file; None sets no limit.
        keys: prefix of the configuration keys that set these arguments, for error messages.
    """

    image_size: Size | None
    channels: int
    crop: Crop = "center"
    background: Background = WHITE
    dtype: Depth = "uint8"
    value_range: tuple[float, float] | None = None
    max_pixels: int | None = MAX_PIXELS
    keys: str = field(default="data.", repr=False)

    def __post_init__(self) -> None:
        if self.value_range is not None and not -math.inf < self.value_range[0] < self.value_range[1] < math.inf:
            raise RefusedInput(
                f"value_range={list(self.value_range)}: the second number must be greater than the first one, and both"
                " must be finite."
            )

    @property
    def decoding(self) -> Decoding:
        """Settings with which files are decoded for this conversion."""
        has_range = self.value_range is not None
        return Decoding(self.takes_values, self.max_pixels, self.keys, (self.channels,), has_range)

    @property
    def parts(self) -> tuple[slice, ...]:
        """Slice of the color channels, without the alpha channel, in the arrays that `fit` returns."""
        return (slice(0, 3 if self.channels == 4 else self.channels),)

    @property
    def takes_values(self) -> bool:
        """Whether images are converted from the stored values of a file, rather than from an 8-bit Pillow image."""
        return self.dtype != "uint8" or self.value_range is not None or self.channels not in _MODES

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (channels, height, width) of the arrays that `fit` returns."""
        assert self.image_size is not None
        return self.channels, *sides(self.image_size)

    def fit(self, picture: Picture, name: str, notes: list[str]) -> Shaped[np.ndarray, "c h w"]:
        """Converts a decoded file to an image.

        Args:
            picture: decoded Pillow image, or an array of shape (h, w), (h, w, c) or (c, h, w).
            name: name of the file, for error messages.
            notes: list to which this method appends notes for the user about the conversion.

        Raises:
            RefusedInput: the crop is empty or larger than the file, or the values have an unexpected number of
                channels or an unknown range, or are not finite.
        """
        if isinstance(picture, Image.Image):
            is_deep, is_known = picture.mode[0] in "IF", self.channels in _MODES
            picture = values_of(picture) if is_deep or not is_known else self._plain(picture, notes)
        if isinstance(picture, np.ndarray) or self.takes_values:
            return self._fit_values(np.asarray(picture), name, notes)
        box = self._box(*picture.size, name, notes)
        if box != (0, 0, *picture.size):
            # this call only crops, because resizing in the same call would blend in pixels outside of the box;
            # `Image.crop` is not used, because it limits the number of pixels
            picture = picture.resize((box[2] - box[0], box[3] - box[1]), Image.Resampling.NEAREST, box)
        if self.image_size is not None and picture.size != sides(self.image_size)[::-1]:  # Pillow's (width, height)
            picture = picture.resize(sides(self.image_size)[::-1], Image.Resampling.BILINEAR)
        pixels = np.asarray(picture)
        return pixels.reshape(*pixels.shape[:2], self.channels).transpose(2, 0, 1).copy()

    def _plain(self, picture: Image.Image, notes: list[str]) -> Image.Image:
        """Converts an 8-bit Pillow image to grayscale, RGB or RGBA.

        A transparent image is composited over `background`, unless the converted images have 4 channels.
        """
        transparent = picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info
        if transparent and self.channels != 4:
            notes.append("transparent, composited over data.background")
            picture = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", picture.size, (*self.background, 255)), picture)
        mode = _MODES[self.channels]
        if picture.mode in ("P", "LAB") and mode == "L":  # Pillow converts neither directly without an error or a loss
            picture = picture.convert("RGB")
        return picture if picture.mode == mode else picture.convert(mode)

    def range_of(self, values: Shaped[np.ndarray, "..."], name: str) -> tuple[float, float]:
        """Returns the two values that become black and white.

        Raises:
            RefusedInput: `value_range` is None, and the type of the values does not determine the range.
        """
        known = self.value_range or RANGES.get(values.dtype.name)
        if known is None:
            span = f"{values.min():.6g} to {values.max():.6g}"
            kind = {"f": "floating-point pixels", "i": "pixels with a sign"}.get(
                values.dtype.kind, "pixels of more than 16 bits"
            )
            raise RefusedInput(
                f"{name} has {values.dtype.name} values, here from {span}, and the value range of {kind} is unknown:"
                f" add {self.keys}value_range=[LOW,HIGH], the values that become black and white."
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
        # float32 represents 16-bit integers exactly, but not the differences between larger integers
        computed = np.float32 if values.dtype.itemsize <= 2 else np.float64
        part = torch.from_numpy(values[top:bottom, left:right].astype(computed)).permute(2, 0, 1)[None]
        if self.image_size is not None and part.shape[-2:] != sides(self.image_size):
            part = functional.interpolate(part, sides(self.image_size), mode="bilinear", antialias=True)
        unit = (part[0].numpy() - computed(low)) / computed(high - low)
        if unit.min() < -_RANGE_NOISE or unit.max() > 1 + _RANGE_NOISE:
            notes.append(f"with values outside {self.keys}value_range, which are clipped")
        unit = unit.clip(0, 1).astype(np.float32)
        if len(unit) == 1 and self.channels in (3, 4):  # repeats gray as RGB, and adds an opaque alpha channel
            unit = np.concatenate([unit] * 3 + [np.ones_like(unit)] * (self.channels - 3))
        if self.dtype == "float32":
            return unit * np.float32(2) - np.float32(1)
        if values.dtype != np.uint8:
            note = f"{values.dtype.name} values, scaled to 8 bits (data.dtype=float32 keeps them)"
            notes.append(IN_16_BITS if values.dtype.name == "uint16" else note)
        return (unit * 255).round().astype(np.uint8)

    def _channels_last(
        self, values: Shaped[np.ndarray, "..."], name: str, notes: list[str]
    ) -> Shaped[np.ndarray, "h w c"]:
        """Moves the channels to the last axis. The result has `channels` channels, or 1 if gray is repeated as RGB."""
        if values.ndim == 4 and values.shape[-1] == 1 and len(values) == self.channels:  # each page is one channel
            values = np.moveaxis(values[..., 0], 0, -1)
        elif values.ndim == 4:
            notes.append(SEVERAL)
            values = values[0]
        values = values[..., None] if values.ndim == 2 else values
        if values.shape[-1] == self.channels or (values.shape[-1] == 1 and self.channels in (3, 4)):
            return values
        is_gray = len(values) == 1 and self.channels in (3, 4)
        if (len(values) == self.channels or is_gray) and values.shape[-1] > 1:
            return np.moveaxis(values, 0, -1)
        advice = {
            2: "; if the second channel is transparency, convert the file to RGBA, and use data.channels=4",
            4: "; if the fourth channel is transparency, use data.channels=4",
        }
        if not self.keys:  # the number of channels cannot be set
            advice = dict.fromkeys(advice, "; if the last channel is transparency, remove it")
        raise RefusedInput(
            f"{name} has the shape {values.shape}, expected {self.channels} channels"
            f"{' (data.channels)' if self.keys else ''}{advice.get(values.shape[-1], '')}."
        )

    def _box(self, width: int, height: int, name: str, notes: list[str]) -> tuple[int, int, int, int]:
        high, wide = (height, width) if self.image_size is None else sides(self.image_size)
        rows, columns = height, width
        if self.crop == "center":
            rows, columns = min(rows, max(1, columns * high // wide)), min(columns, max(1, rows * wide // high))
        elif not isinstance(self.crop, str):
            rows, columns = sides(self.crop)
        if not (1 <= rows <= height and 1 <= columns <= width):  # Pillow would pad with black pixels
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
    """Converts the two pictures of a pair to the same size and depth, and concatenates their channels."""

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
        """Slices of the color channels of both pictures; see `Frame`."""
        (first,), (second,) = self.first.parts, self.second.parts
        return first, slice(self.first.channels, self.first.channels + second.stop)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (channels, height, width) of the arrays that `fit` returns."""
        channels, height, width = self.first.shape
        return channels + self.second.channels, height, width

    def fit(self, pictures: tuple[Picture, Picture], name: str, notes: list[str]) -> Shaped[np.ndarray, "c h w"]:
        """Converts a pair to one image; see `Frame.fit`. A note that applies to both pictures is appended only once."""
        pair_notes: list[str] = []
        images = [self.first.fit(pictures[0], name, pair_notes), self.second.fit(pictures[1], name, pair_notes)]
        notes += sorted({*pair_notes})
        return np.concatenate(images)


def read_image(path: Path, frame: Frame) -> Shaped[Tensor, "1 c h w"]:
    """Reads a file and converts it to an image.

    Raises:
        RefusedInput: see `read_picture` and `Frame.fit`.
    """
    return torch.from_numpy(frame.fit(read_picture(path, [], frame.decoding), str(path), []))[None]


def images_at(path: str | Path, nested: bool = False) -> list[Path]:
    """Returns the image files in a folder or archive; see `images_in`. If `path` is another file, returns only it."""
    path = Path(path)
    return [path] if os.path.isfile(path) and not is_archive(path) else images_in(path, nested)


def read_at(path: Path, frame: Frame, whole: bool = False) -> Float[Tensor, "1 c h w"]:
    """Reads a file as an image in [0, 1]. If `whole` is true, the image is not resized."""
    return to_unit_range(read_image(path, replace(frame, image_size=None) if whole else frame))


def to_networks(images: Shaped[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Maps images of a data source to [-1, 1]. Floating-point images are already in [-1, 1] and stay unchanged."""
    return images if images.is_floating_point() else images.float() / 127.5 - 1


def to_unit_range(images: Shaped[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
    """Maps images of a data source, uint8 or floats in [-1, 1], to [0, 1]."""
    return (images + 1) / 2 if images.is_floating_point() else images.float() / 255


def viewable(images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n v h w2"]:
    """Returns images that a PNG file can store. Gray, RGB and RGBA images stay unchanged.

    The channels of all other images are placed side by side, as one gray image.
    """
    if images.shape[1] in _MODES:
        return images
    return images.transpose(1, 2).flatten(2)[:, None]


def write_grid(images: Float[Tensor, "n c h w"], path: Path, columns: int) -> None:
    """Writes images in [0, 1] to a file, arranged in a grid with `columns` columns; see `viewable`."""
    save_image(viewable(images), path, nrow=columns)


def to_uint8(images: Float[Tensor, "n c h w"]) -> UInt8[Tensor, "n c h w"]:
    """Converts images in [0, 1] to uint8, with rounding.

    Raises:
        FloatingPointError: the images are not finite, because training has diverged.
        RefusedInput: values are outside of [0, 1]; they would otherwise wrap around or be clipped silently.
    """
    if not torch.isfinite(images).all():
        raise FloatingPointError("generated images are not finite: the training has diverged.")
    refuse_out_of_range(images)
    return images.mul(255).round().clamp(0, 255).to(torch.uint8)


def refuse_out_of_range(images: Float[Tensor, "n c h w"]) -> None:
    """Raises `RefusedInput` if values are outside of [0, 1] by more than rounding errors. NaN is not checked."""
    low, high = (bound.item() for bound in images.aminmax()) if images.numel() else (0, 1)
    if low < -_RANGE_NOISE or high > 1 + _RANGE_NOISE:
        raise RefusedInput(
            f"images have values in [{low:.3g}, {high:.3g}], expected [0, 1]: rescale the output of a tanh with"
            " (x + 1) / 2."
        )


def reduced(images: Float[Tensor, "n c h w"]) -> Float[Tensor, "n pixels"]:
    """Returns images as vectors, downscaled to at most 32x32 pixels."""
    height, width = images.shape[-2:]
    scale = min(1.0, _REDUCED / max(height, width))
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    return functional.interpolate(images, size, mode="area").flatten(1)
