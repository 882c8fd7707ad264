"""Decodes image files: all files that Pillow opens, NumPy arrays, and TIFF and PNG files of any bit depth.

Values of more than 8 bits are returned as the file stores them, no matter which library decodes the file. Only `Frame`
decides which values become black and white. The exceptions are PGM, PPM and JPEG 2000 files, whose values Pillow scales
to 8 or 16 bits: they are returned as stored only if the user sets a value range.
"""

from __future__ import annotations

import io
import math
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped
from PIL import Image, ImageFile, UnidentifiedImageError

from lit_gans.common.errors import RefusedInput, import_extra, refusing
from lit_gans.data.archives import open_file
from lit_gans.data.files import (
    NO_IMAGES,
    is_jpeg_or_png,
    misnamed,
    reason_of_content,
    reason_unread,
    register_plugins,
)

Picture = Image.Image | np.ndarray
File = io.BufferedReader | io.BytesIO
MAX_PIXELS = 178_956_970  # Pillow's own limit; Pillow raises an error for larger images
IN_16_BITS = "16 bits, scaled to 8"
UNREADABLE_EXIF = "with unreadable EXIF data, so that they are not rotated"
SEVERAL = "animated or with several pages, of which only the first is used"
# TIFF tags
_BITS, _PHOTOMETRIC, _DESCRIPTION, _ORIENTATION, _SAMPLES, _PLANES, _FORMAT = 258, 262, 270, 274, 277, 284, 339
_KINDS = {1: "u", 2: "i", 3: "f", 4: "u"}
_SEPARATED = 5  # photometric interpretation of CMYK images
# for each EXIF orientation: Pillow's method that turns an image upright, and for an array, whether to exchange rows and
# columns, and the axes to reverse after that
_ORIENTATIONS: dict[object, tuple[Image.Transpose, bool, tuple[int, ...]]] = {
    2: (Image.Transpose.FLIP_LEFT_RIGHT, False, (1,)),
    3: (Image.Transpose.ROTATE_180, False, (0, 1)),
    4: (Image.Transpose.FLIP_TOP_BOTTOM, False, (0,)),
    5: (Image.Transpose.TRANSPOSE, True, ()),
    6: (Image.Transpose.ROTATE_270, True, (1,)),
    7: (Image.Transpose.TRANSVERSE, True, (0, 1)),
    8: (Image.Transpose.ROTATE_90, True, (0,)),
}


@dataclass(frozen=True)
class Decoding:
    """Settings that control how files are decoded.

    Args:
        as_values: whether to keep 16-bit colors, and to decode all pages of a gray TIFF file.
        max_pixels: maximum number of pixels of a file; None sets no limit.
        keys: prefix of the configuration keys that set these arguments, for error messages.
        channels: possible numbers of channels of the images. The pages of a gray TIFF file are decoded as channels if
            their number is one of these numbers.
        has_range: whether the user sets a value range. If so, the values of PGM, PPM and JPEG 2000 files are not
            scaled, because a value range refers to the values in the file. Pillow scales them if their maximum is not
            255 or 65535.
    """

    as_values: bool = False
    max_pixels: int | None = MAX_PIXELS
    keys: str = "data."
    channels: tuple[int, ...] = ()
    has_range: bool = False

    def keeps_pages(self, num: int) -> bool:
        """Returns whether to decode all pages of a gray TIFF file that has `num` pages."""
        return num > 1 and (self.as_values or num in self.channels)

    def refuse_size(self, width: int, height: int, name: str) -> None:
        """Raises `RefusedInput` if a file has more than `max_pixels` pixels."""
        num = width * height
        if self.max_pixels is not None and num > self.max_pixels:
            raise RefusedInput(
                f"{name} is {width}x{height} pixels, {num} in all, which exceeds {self.keys}max_pixels="
                f"{self.max_pixels}, the limit that protects the memory from small files with many pixels: if you"
                f" trust the file, add {self.keys}max_pixels={num}, or {self.keys}max_pixels=null for no limit."
            )


def read_picture(
    source: Path | bytes, notes: list[str], decoding: Decoding = Decoding(), name: str | None = None
) -> Picture:
    """Decodes an image file and rotates it upright. Of an animation, only the first frame is decoded.

    Args:
        source: path of the file, or its content as bytes.
        notes: list to which this function appends notes for the user.
        decoding: see `Decoding`.
        name: name of the file, for error messages; None uses its path.

    Returns:
        An 8-bit Pillow image, or an array for values of more than 8 bits and for array files. An array has the shape
        (h, w), (h, w, c) or (c, h, w), or (p, h, w, c) for several pages.

    Raises:
        RefusedInput: the file cannot be read, or has more than `max_pixels` pixels. The message gives the path and the
            reason.
    """
    name = str(source) if name is None and isinstance(source, Path) else name or "the image"
    with refusing(f"{name} cannot be read as an image"):
        reason = reason_unread(source) if isinstance(source, Path) else None
        if reason is not None:
            raise ValueError(reason)
        with _file_of(source) as file:
            head = file.read(132)
            file.seek(0)
            if head.startswith(b"\x93NUMPY") or (isinstance(source, Path) and source.suffix.lower() == ".npy"):
                if is_jpeg_or_png(head):
                    raise ValueError(misnamed(".npy"))
                return _array(file, decoding, name)
            try:
                picture = _identified(file, name)
            except UnidentifiedImageError as error:
                if head[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
                    return _tiff(file, notes, decoding, name)
                reason = reason_of_content(head)
                raise ValueError(reason or error) from error
            decoding.refuse_size(*picture.size, name)
            return _decoded(picture, file, notes, decoding, name)


@contextmanager
def _file_of(source: Path | bytes) -> Iterator[File]:
    with io.BytesIO(source) if isinstance(source, bytes) else open_file(source) as file:
        yield file


def _array(file: File, decoding: Decoding, name: str) -> Shaped[np.ndarray, "..."]:
    version = np.lib.format.read_magic(file)
    read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("Object arrays cannot be loaded, because they could execute code")
    if len(shape) not in (2, 3) or not all(shape):
        raise ValueError(
            f"its shape is {shape}, expected (height, width), (height, width, channels) or (channels, height, width)"
        )
    height, width = _sides_of(shape)
    decoding.refuse_size(width, height, name)
    start = file.tell()
    if file.seek(0, io.SEEK_END) - start < math.prod(shape) * dtype.itemsize:  # numpy would allocate the memory first
        raise ValueError(f"it is cut off: it holds fewer values than an array of the shape {shape}")
    file.seek(0)
    return np.load(file, allow_pickle=False)


def _identified(file: File, name: str) -> ImageFile.ImageFile:
    """Opens a file like `PIL.Image.open`, with two differences.

    Pillow's own limit on the number of pixels does not apply, because it is a global variable. Formats whose decoder
    executes another program are excluded.
    """
    register_plugins()
    Image.preinit()  # tries the common formats first
    Image.init()
    head, messages = file.read(16), []
    for kind in Image.ID:
        if kind in NO_IMAGES or kind not in Image.OPEN:
            continue
        factory, accept = Image.OPEN[kind]
        with suppress(SyntaxError, IndexError, TypeError, struct.error):  # raised for files in other formats
            accepted = accept is None or accept(head)
            if isinstance(accepted, str):
                messages.append(accepted)
            elif accepted:
                file.seek(0)
                return factory(file, getattr(file, "name", ""))
    raise UnidentifiedImageError("; ".join([f"cannot identify image file {name!r}", *messages]))


def _decoded(picture: ImageFile.ImageFile, file: File, notes: list[str], decoding: Decoding, name: str) -> Picture:
    if picture.format == "FITS" and picture.mode != "L":  # Pillow ignores the scale and zero point
        raise ValueError("FITS with more than 8 bits is not supported: convert it to TIFF")
    num_frames, stored, reduced = getattr(picture, "n_frames", 1), _stored(picture), _is_reduced(picture, file)
    if _is_gray_tiff(picture) and (decoding.keeps_pages(num_frames) or (num_frames > 1 and _is_array(picture))):
        return _tiff(file, notes, decoding, name)
    if stored is not None and (_has_planes(picture) or (decoding.as_values and reduced)):
        return _tiff(file, notes, decoding, name)
    if num_frames > 1:
        notes.append(SEVERAL)
    if reduced and decoding.as_values:
        if picture.format != "PNG":
            raise ValueError(
                f"Pillow reduces the 16-bit colors of {picture.format} files to 8 bits: convert it to TIFF or PNG"
            )
        return _upright_values(_deep_png(file), _orientation(picture, notes))
    scaling = _scaling(picture, file) if decoding.has_range else None
    picture.load()
    return _upright(_converted(picture, stored, reduced, scaling, notes, decoding), _orientation(picture, notes))


def _converted(
    picture: ImageFile.ImageFile,
    stored: np.dtype | None,
    reduced: bool,
    scaling: tuple[float, int, type] | None,
    notes: list[str],
    decoding: Decoding,
) -> Picture:
    """Returns a loaded Pillow image, or its values if they have more than 8 bits. The image is not rotated."""
    if reduced:
        return _noted(picture, notes)
    if picture.format == "PNG" and picture.mode[0] == "I" and "transparency" in picture.info:
        return _transparent(picture, notes, decoding)
    if scaling is not None:
        ratio, zero, kind = scaling
        return ((np.asarray(picture) * ratio).round() - zero).astype(kind)
    return _values(picture, stored) if picture.mode[0] in "IF" or stored is not None else picture


def _is_reduced(picture: Any, file: File) -> bool:
    """Returns whether a file has 16-bit colors, which Pillow reduces to 8 bits. Gray 16-bit files are not reduced."""
    if picture.mode[0] in "IF":
        return False
    if picture.format == "JPEG2000":
        return _depth_of_jpeg2000(file)[0] > 8
    if picture.format == "PPM":
        return any(isinstance(part.args, tuple) and part.args[1:] > (255,) for part in picture.tile)
    return any(part.codec_name == "SGI16" or re.search(";16[BLN]", str(part.args)) for part in picture.tile)


def _scaling(picture: Any, file: File) -> tuple[float, int, type] | None:
    """Returns how to undo Pillow's scaling of a PGM, PPM or JPEG 2000 file, or None if Pillow does not scale it.

    Must be called before the Pillow image is loaded.

    Returns:
        The factor by which to multiply the values, the value to subtract from the products, and their data type.
    """
    full, kind = (65535, np.uint16) if picture.mode[0] == "I" else (255, np.uint8)
    if picture.format == "PPM" and picture.tile[0].codec_name.startswith("ppm"):
        return picture.tile[0].args[-1] / full, 0, kind
    if picture.format == "JPEG2000" and picture.mode in ("L", "RGB", "I;16"):
        depth, is_signed = _depth_of_jpeg2000(file)
        if is_signed:
            return 2**depth / (full + 1), 2 ** (depth - 1), np.int16
        return (2**depth / (full + 1), 0, kind) if 2**depth != full + 1 else None
    return None


def _depth_of_jpeg2000(file: File) -> tuple[int, bool]:
    """Returns the number of bits per value in the first channel of a JPEG 2000 file, and whether values have a sign."""
    position = file.tell()
    file.seek(0)
    head = file.read(4096)
    file.seek(position)
    start = head.find(b"\xff\x51")  # the SIZ marker segment holds the sizes, followed by the bit depths
    depth = head[start + 40] if 0 <= start < len(head) - 40 else 7
    return (depth & 127) + 1, depth > 127


def _stored(picture: Any) -> np.dtype | None:
    """Returns the data type of the values in a TIFF file, or None for unsigned values of up to 8 bits.

    For all other file formats, returns None.
    """
    if picture.format != "TIFF":
        return None
    kind, bits = _KINDS.get(picture.tag_v2.get(_FORMAT, (1,))[0], "u"), max(picture.tag_v2.get(_BITS, (1,)))
    if kind == "u" and bits <= 8:
        return None
    return np.dtype(f"{kind}{next(size for size in (1, 2, 4, 8) if 8 * size >= bits)}")


def _is_gray_tiff(picture: Any) -> bool:
    """Returns whether a TIFF file has a single gray channel in which the minimum is black."""
    return picture.format == "TIFF" and picture.tag_v2.get(_SAMPLES, 1) == picture.tag_v2.get(_PHOTOMETRIC) == 1


def _is_array(picture: Any) -> bool:
    """Returns whether tifffile wrote a TIFF file as an array. The pages are slices of this array along any axis."""
    return str(picture.tag_v2.get(_DESCRIPTION, "")).startswith('{"shape":')


def _has_planes(picture: Any) -> bool:
    """Returns whether a TIFF file stores each channel separately. Pillow misreads these files above 8 bits."""
    return picture.tag_v2.get(_SAMPLES, 1) > 1 and picture.tag_v2.get(_PLANES, 1) == 2


def _values(picture: Any, stored: np.dtype | None) -> Shaped[np.ndarray, "h w"]:
    """Returns the gray values of a decoded file, in the data type that the file stores."""
    values = np.asarray(picture)
    if picture.format in ("PNG", "PPM") and picture.mode == "I":  # 16-bit values, which Pillow might return as 32-bit
        return values.astype(np.uint16)
    if stored is None:
        return values
    values = values.view(np.int8) if stored == np.int8 else values.astype(stored)
    is_inverted = stored == np.uint16 and picture.tag_v2.get(_PHOTOMETRIC) == 0  # Pillow inverts 8-bit values only
    return np.uint16(65535) - values if is_inverted else values


def _transparent(picture: Any, notes: list[str], decoding: Decoding) -> Picture:
    """Returns the gray and alpha channels of a 16-bit PNG file that declares one gray value as transparent.

    Pillow ignores this declaration for 16-bit files.
    """
    values = _values(picture, None)
    opacity = np.where(values == picture.info["transparency"], np.uint16(0), np.uint16(65535))
    both = np.stack([values, opacity], -1)
    if decoding.as_values:
        return both if (opacity == 0).any() else values
    return _noted(Image.fromarray((both / 257).round().astype(np.uint8)), notes)


def _noted(picture: Image.Image, notes: list[str]) -> Image.Image:
    """Marks an image of 8 bits as decoded from a file of 16 bits."""
    notes.append(IN_16_BITS)
    picture.info[IN_16_BITS] = True
    return picture


def stored_type(picture: Any) -> str:
    """Returns the name of the type of the values in the file from which an image was decoded."""
    if isinstance(picture, np.ndarray):
        return picture.dtype.name
    return "uint16" if IN_16_BITS in getattr(picture, "info", ()) else "uint8"


def _deep_png(file: File) -> Shaped[np.ndarray, "h w c"]:
    file.seek(0)
    width, height, rows, about = import_extra("png", "depth").Reader(file=file).asDirect()
    return np.array([*map(np.uint16, rows)]).reshape(height, width, about["planes"])


def _tiff(file: File, notes: list[str], decoding: Decoding, name: str) -> Shaped[np.ndarray, "..."]:
    """Returns the values of a TIFF file with channels last, for all pages that have the size of the first page."""
    file.seek(0)
    with import_extra("tifffile", "depth").TiffFile(file) as tiff:
        page, series = tiff.pages.first, tiff.series[0]
        if page.photometric == _SEPARATED:
            raise ValueError("it has 16-bit cyan, magenta, yellow and black channels: convert it to RGB")
        decoding.refuse_size(page.imagewidth, page.imagelength, name)
        axes, values, orientation = series.axes, series.asarray(), page.tags.get(_ORIENTATION)
    if series.kind == "shaped" and "S" not in axes and values.ndim == 3:  # tifffile wrote a single array
        return values
    if "S" in axes:
        values, axes = np.moveaxis(values, axes.index("S"), -1), axes.replace("S", "")
    else:
        values = values[..., None]
    if not axes.endswith("YX"):
        raise ValueError(f"its axes are {series.axes}, expected height and width (YX) last")
    pages = [
        _upright_values(page, orientation.value if orientation else 1)
        for page in values.reshape(-1, *values.shape[-3:])
    ]
    if decoding.keeps_pages(len(pages)):
        return np.stack(pages)
    if len(pages) > 1 or len(tiff.series) > 1:
        notes.append(SEVERAL)
    return pages[0]


def _orientation(picture: Image.Image, notes: list[str]) -> object:
    """Returns the orientation in the EXIF data of an image, or 1, which is upright, if the data cannot be read."""
    try:
        return picture.getexif().get(_ORIENTATION, 1)
    except Exception:  # cameras and editors write damaged data, for which Pillow raises errors of many types
        notes.append(UNREADABLE_EXIF)
        return 1


def _upright(picture: Picture, orientation: object) -> Picture:
    """Rotates and flips an image, or an array (h, w) or (h, w, c), by an EXIF orientation.

    `ImageOps.exif_transpose` is not used, because it also writes the EXIF data anew, which fails for data that Pillow
    can read but not write.
    """
    if isinstance(picture, np.ndarray):
        return _upright_values(picture, orientation)
    return picture.transpose(_ORIENTATIONS[orientation][0]) if orientation in _ORIENTATIONS else picture


def _upright_values(values: Shaped[np.ndarray, "h w *c"], orientation: object) -> Shaped[np.ndarray, "_ _ *c"]:
    _, exchanged, reverse = _ORIENTATIONS.get(orientation, (None, False, ()))
    return np.flip(values.swapaxes(0, 1) if exchanged else values, reverse)


def values_of(picture: Picture) -> Shaped[np.ndarray, "..."]:
    """Returns the stored values of a decoded file as an array. Palette indices are replaced by colors."""
    if isinstance(picture, np.ndarray):
        return picture
    if picture.mode == "P":
        picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
    return np.asarray(picture.convert("RGB") if picture.mode in ("CMYK", "YCbCr", "HSV", "LAB") else picture)


def size_of(picture: Picture) -> tuple[int, int]:
    """Returns width and height.

    In an array with three axes, the shorter of the first and last axes holds the channels.
    """
    if isinstance(picture, Image.Image):
        return picture.size
    height, width = _sides_of(picture.shape)
    return width, height


def _sides_of(shape: tuple[int, ...]) -> tuple[int, int]:
    return shape[1:3] if _is_planar_shape(shape) else shape[:2]  # type: ignore[return-value]


def is_planar(values: Shaped[np.ndarray, "..."]) -> bool:
    """Returns whether the axis of channels or pages precedes the height and width axes of an array."""
    return _is_planar_shape(values.shape)


def _is_planar_shape(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 or (len(shape) == 3 and shape[0] < shape[2])
