"""Finds the image files in a folder or archive: readable files, and files that look like images but cannot be read.

A file is readable if Pillow or NumPy reads it. A file that no installed package can read is listed with the reason.
"""

from __future__ import annotations

import logging
import mimetypes
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Literal

from PIL import Image

from lit_gans.common.errors import RefusedInput, install_command
from lit_gans.data.archives import (
    archive_of,
    files_in,
    is_archive,
    is_file,
    is_tar,
    is_zip,
    open_file,
    refuse_missing,
    top_of,
)

logger = logging.getLogger(__name__)

OnError = Literal["raise", "skip"]
ARRAYS = (".npy",)
LABELS = (".cls", ".json")  # files that can contain classes
# Pillow formats that are not images, that only other programs can decode, or whose decoder executes another program
NO_IMAGES = frozenset({"BUFR", "EPS", "GRIB", "HDF5", "MPEG", "PDF", "WMF"})

_HEIC = f"the package pillow-heif reads HEIC: {install_command('heic')}"
_JXL = "the package pillow-jxl-plugin reads JPEG XL: python -m pip install pillow-jxl-plugin"
_AVIF = 'Pillow 11.3 or later reads AVIF: python -m pip install --upgrade "pillow>=11.3"'
_DRAWING = "a vector drawing has no pixels: convert it to PNG"
_RAW = "the raw format of a camera is not supported: convert it to TIFF or PNG"
_OTHER = "the format is not supported: convert it to PNG or TIFF"
_REASONS = {
    **dict.fromkeys((".heic", ".heif", ".hif", ".heics", ".heifs"), _HEIC),
    **dict.fromkeys((".avif", ".avifs"), _AVIF),
    ".jxl": _JXL,
    **dict.fromkeys((".svg", ".svgz", ".eps", ".wmf", ".emf"), _DRAWING),
    **dict.fromkeys((".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dng", ".erf", ".fff", ".iiq", ".kdc", ".mef"), _RAW),
    **dict.fromkeys((".mos", ".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".sr2", ".srf"), _RAW),
    **dict.fromkeys((".dcr", ".gpr", ".k25", ".rwl", ".srw", ".x3f"), _RAW),
    **dict.fromkeys((".cin", ".czi", ".djvu", ".dpx", ".mha", ".mrc", ".nd2", ".nii", ".nrrd"), _OTHER),
    **dict.fromkeys((".bpg", ".dcm", ".dicom", ".exr", ".flif", ".jxr", ".kra", ".pct", ".pict", ".psb"), _OTHER),
    **dict.fromkeys((".wdp", ".xcf"), _OTHER),
}
_RAW_IF_TIFF = (".bay", ".cap", ".ptx")  # files of other formats also have these extensions
_PLUGINS = ("pillow_heif", "pillow_jxl", "pillow_avif")
# extensions of copies and unfinished downloads, and of thumbnails that cameras and players store next to videos
_NO_ORIGINALS = frozenset(
    (".bak", ".crdownload", ".ctg", ".download", ".ithmb", ".old", ".orig", ".part", ".partial", ".swp", ".thm", ".tmp")
)
# folders of thumbnails, deleted files and metadata; folders whose name begins with a dot are skipped in any case
_NO_FOLDERS = frozenset(
    (
        "#recycle",
        "#snapshot",
        "$recycle.bin",
        "@__thumb",
        "@eadir",
        "@recently-snapshot",
        "@recycle",
        "@sharesnap",
        "@synoresource",
        "@tmp",
        "__macosx",
        "_vti_cnf",
        "canonmsc",
        "captureone",
        "found.000",
        "lost+found",
        "lost.dir",
        "network trash folder",
        "recycled",
        "recycler",
        "system volume information",
        "temporary items",
        "thmbnl",
        "~snapshot",
    )
)
# folders of thumbnails in a macOS photo library
_DERIVED, _LIBRARIES = ("derivatives", "thumbnails"), (".photoslibrary", ".photolibrary")
_PACKED = ("images.npy", "rows.jsonl")  # files in a folder of packed images
_BY_CONTENT = ("ICO", "PCX", "PPM", "SGI")  # Pillow formats without an entry in `_SIGNATURES`, recognized by content
_TYPES = mimetypes.MimeTypes(filenames=())  # ignores the operating system's tables
_HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_JXL_BOX = b"\0\0\0\x0cJXL \r\n\x87\n"
_SIGNATURES = (
    b"\xff\xd8\xff",  # JPEG
    b"\x89PNG\r\n\x1a\n",
    b"GIF87a",
    b"GIF89a",
    b"II*\0",  # TIFF
    b"MM\0*",
    b"\0\0\0\x0cjP  \r\n\x87\n",  # JPEG 2000
    b"\xff\x4f\xff\x51",
    b"8BPS",  # Photoshop
    b"qoif",
    b"DDS ",
    b"\x93NUMPY",
)


@dataclass(frozen=True)
class Found:
    """Image files that were found in a folder or archive.

    Args:
        folder: path of the folder.
        images: readable image files, sorted.
        unread: reason why no installed package reads a file, for each file that looks like an image but cannot be read.
            Sorted by path.
        tables: files with the extensions `LABELS`, sorted.
        in_shards: whether the images are in several tar archives in the folder.
    """

    folder: Path
    images: list[Path]
    unread: dict[Path, str]
    tables: list[Path] = field(default_factory=list)
    in_shards: bool = False

    def inside(self, path: Path) -> PurePath:
        """Returns the path of a file relative to the folder, or to the shard that contains the file."""
        return PurePath(*path.relative_to(self.folder).parts[int(self.in_shards) :])

    def left_out(self, on_error: OnError, root: Path) -> list[str]:
        """Returns one line of text for each file that cannot be read.

        A line contains the path relative to `root`, so that the lines stay the same if the data are moved.

        Raises:
            RefusedInput: a file cannot be read, and `on_error` is `raise`.
        """
        if self.unread and on_error == "raise":
            raise RefusedInput(f"{self._summary()}; data.on_error=skip leaves them out.")
        return [
            f"{path.relative_to(root)} cannot be read as an image: {reason}." for path, reason in self.unread.items()
        ]

    def all_readable(self) -> list[Path]:
        """Returns all image files.

        Raises:
            RefusedInput: a file looks like an image but cannot be read.
        """
        if self.unread:
            raise RefusedInput(f"{self._summary()}; convert them, or move them to another folder.")
        return self.images

    def _summary(self) -> str:
        """Returns a message with the number of unreadable files and, for each extension, an example and the reason."""
        by_ending: dict[str, list[Path]] = {}
        for path in self.unread:
            by_ending.setdefault(path.suffix.lower(), []).append(path)
        kinds = (
            f"{len(paths)} {ending or 'without an extension'}, such as {paths[0]} ({self.unread[paths[0]]})"
            for ending, paths in by_ending.items()
        )
        num = len(self.unread)
        return f"{num} of the {num + len(self.images)} images in {self.folder} cannot be read: {'; '.join(kinds)}"


def leave_out(what: str, on_error: OnError) -> None:
    """Raises `RefusedInput` if `on_error` is `raise`. Otherwise warns that files are skipped."""
    if on_error == "raise":
        raise RefusedInput(f"{what}; data.on_error=skip leaves them out.")
    logger.warning("%s; these are left out", what)


@cache
def register_plugins() -> None:
    """Registers the installed Pillow plugins for HEIC, JPEG XL and AVIF."""
    for name in _PLUGINS:
        with suppress(ImportError):
            module = import_module(name)
            if name == "pillow_heif":  # the other plugins register themselves
                module.register_heif_opener()


def readable_endings() -> set[str]:
    """Returns the extensions of all files that Pillow reads, in lower case."""
    register_plugins()
    known = Image.registered_extensions().items()
    # Pillow's JPEG decoder also reads MPO files
    return {ending for ending, name in known if name not in NO_IMAGES and (name in Image.OPEN or name == "MPO")}


def reason_unread(path: Path) -> str | None:
    """Returns the reason why a file with an image extension cannot be read, or None for all other files."""
    ending = path.suffix.lower()
    if ending in ARRAYS or ending in readable_endings():
        return None
    is_image = any(types.get(ending, "").startswith("image/") for types in _TYPES.types_map)
    saved_only = Image.registered_extensions().get(ending, "PDF") not in NO_IMAGES  # Pillow only writes it
    reason = _REASONS.get(ending, _OTHER if is_image or saved_only else None)
    if reason is not None:
        with suppress(OSError):
            if is_file(path) and is_jpeg_or_png(first_bytes(path)):
                return misnamed(ending)
    return reason


def misnamed(ending: str) -> str:
    """Returns the reason why a JPEG or PNG file with the extension of another format is not read."""
    return f"its extension {ending} does not match its contents: rename it with the extension of its image format"


def is_jpeg_or_png(head: bytes) -> bool:
    """Returns whether a file that begins with these bytes is a JPEG or PNG file."""
    return head.startswith(_SIGNATURES[:2])


def installed_readers() -> list[str]:
    """Returns the installed packages that read files which Pillow alone cannot read."""
    return [name for name in (*_PLUGINS, "png", "tifffile", "imagecodecs") if find_spec(name) is not None]


def reason_of_content(head: bytes) -> str | None:
    """Returns the reason why an image file that begins with these bytes cannot be read.

    Returns None if the file can be read, or is not an image.
    """
    register_plugins()
    if head[4:8] == b"ftyp" and head[8:12] in _HEIF_BRANDS and "HEIF" not in Image.OPEN:
        return _HEIC
    if head[4:12] in (b"ftypavif", b"ftypavis") and ".avif" not in readable_endings():
        return _AVIF
    if (head.startswith(_JXL_BOX) or head[:2] == b"\xff\x0a") and "JXL" not in Image.OPEN:
        return _JXL
    if head[128:132] == b"DICM":
        return _OTHER
    return None


def _has_content_of_an_image(head: bytes) -> bool:
    return (
        head.startswith(_SIGNATURES)
        or head[:4] + head[8:12] == b"RIFFWEBP"
        or (head[4:8] == b"ftyp" and head[8:12] in (b"avif", b"avis", *_HEIF_BRANDS))
        or head.startswith(_JXL_BOX)
        or (head[:2] == b"BM" and head[6:10] == bytes(4))  # Windows bitmap
        or head[128:132] == b"DICM"
    )


def _is_opened(path: Path) -> bool:
    """Returns whether a file without an extension has a format that Pillow recognizes by its content."""
    try:
        with open_file(path) as file:
            Image.open(file, formats=_BY_CONTENT).close()
    except Image.DecompressionBombError:
        return True
    except Exception:
        return False
    return True


def first_bytes(path: Path) -> bytes:
    """Returns the first 132 bytes of a file, which are enough to recognize its format."""
    with open_file(path) as file:
        return file.read(132)


def is_no_folder_of_images(path: Path) -> bool:
    """Returns whether a folder is not searched for images.

    Hidden folders and folders of packed images are not searched. Folders that a camera, a server or an operating system
    creates for its own purposes are not searched, either.
    """
    *above, lower = map(str.lower, path.parts)
    return (
        lower.startswith(".")
        or lower in _NO_FOLDERS
        or lower.endswith(".lrdata")
        or (lower in _DERIVED and any(part.endswith(_LIBRARIES) for part in above))
        or (".packed" in lower and any(os.path.exists(path / name) for name in _PACKED))
    )


def find_images(folder: Path, nested: bool = False) -> Found:
    """Finds the image and array files in a folder or archive. Broken links are included; hidden files are excluded.

    Files are recognized by their extension. Files with an unknown extension are recognized by their first bytes. If the
    folder contains tar archives but no images, the archives are read together, as shards.

    Args:
        folder: path of the folder, or of a zip or tar archive. An archive with a single folder, which contains all
            files, is read as this folder.
        nested: whether to search all subfolders, too.

    Raises:
        RefusedInput: the folder does not exist, cannot be opened, or contains no images that can be read. Also raised
            if an archive is damaged.
    """
    is_folder = os.path.isdir(folder)
    if is_folder:
        found = _sorted_out(folder, _files(folder, nested))
    elif is_archive(folder):
        top = top_of(folder)
        found = _sorted_out(top, _archived(folder, top, nested))
    elif (archive := archive_of(folder)) is not None and is_archive(archive):
        found = _sorted_out(folder, _archived(archive, folder, nested))
    else:
        refuse_missing(folder)
    if is_folder and not found.images and not found.unread:
        shards = [path for path in folder.iterdir() if is_tar(path)]
        files = (path for shard in shards for path in _archived(shard, shard, nested))
        found = replace(_sorted_out(folder, files), in_shards=bool(shards))
    hint = _hint_at_subfolders(folder, nested) if is_folder else ""
    if not found.images:
        found.all_readable()
        zips = [path for path in folder.iterdir() if path.is_file() and is_zip(path)] if is_folder else []
        hint += f" Its archives are read by their own path, such as {zips[0]}." if zips else ""
        known = f".jpg, .png, .tif, .webp, .npy and {len(readable_endings()) - 4} others"
        raise RefusedInput(f"{folder} contains no images ({known}).{hint}")
    if hint:
        logger.warning("the folder %s is read without its subfolders:%s", folder, hint)
    return found


def _sorted_out(folder: Path, files: Iterable[Path]) -> Found:
    """Returns the images among some files of a folder."""
    readable = {*readable_endings(), *ARRAYS}
    images, unread, tables = [], {}, []
    for path in files:
        ending = path.suffix.lower()
        if ending in LABELS:
            tables.append(path)
            continue
        reason = None if ending in readable else reason_unread(path)
        if reason is None and ending not in readable:
            head = _unknown_head(path, ending)
            is_other = any(ending in types for types in _TYPES.types_map)  # not an image, such as .txt
            is_image = is_jpeg_or_png(head) if is_other else _has_content_of_an_image(head)
            if not is_image and (ending or not head or not _is_opened(path)):
                continue
            reason = reason_of_content(head)
            if is_other:
                reason = misnamed(ending)
            elif ending in _RAW_IF_TIFF:
                reason = _RAW
        if reason is None:
            images.append(path)
        else:
            unread[path] = reason
    return Found(folder, sorted(images), dict(sorted(unread.items())), sorted(tables))


def _archived(archive: Path, top: Path, nested: bool) -> Iterator[Path]:
    """Yields the files in a folder of an archive that `_files` would yield after unpacking."""
    skipped: dict[Path, bool] = {top: False}

    def is_skipped(folder: Path) -> bool:
        if folder not in skipped:
            skipped[folder] = not nested or is_no_folder_of_images(folder) or is_skipped(folder.parent)
        return skipped[folder]

    for path in files_in(archive):
        if path.is_relative_to(top) and not path.name.startswith(".") and not is_skipped(path.parent):
            yield path


def _files(folder: Path, nested: bool) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise RefusedInput(f"{error.filename} cannot be opened: {error.strerror}.") from error

    # maps each folder to visit to its real path and the real paths of its parents, because a symbolic link to one of
    # these folders would cause an endless loop
    above = {str(folder): {os.path.realpath(folder)}}
    for parent, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        known = above.pop(parent)
        targets = {name: os.path.realpath(os.path.join(parent, name)) for name in folders if nested}
        folders[:] = [
            name
            for name, target in targets.items()
            if target not in known and not is_no_folder_of_images(Path(parent, name))
        ]
        above |= {os.path.join(parent, name): known | {targets[name]} for name in folders}
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _hint_at_subfolders(folder: Path, nested: bool) -> str:
    """Returns a sentence about images that are not read because they are in subfolders, or an empty string."""
    if nested:
        return ""
    readable = readable_endings()
    images = [path for path in _files(folder, nested=True) if path.suffix.lower() in readable and path.parent != folder]
    return f" Its subfolders contain {len(images)} images, such as {images[0]}." if images else ""


def _unknown_head(path: Path, ending: str) -> bytes:
    """Returns the first bytes of a file with an unknown extension; no bytes for a copy or an unfinished download."""
    if ending in _NO_ORIGINALS or ending.endswith("~"):
        return b""
    with suppress(OSError):
        if is_file(path):  # a pipe would block
            return first_bytes(path)
    return b""


def images_in(folder: Path, nested: bool = False) -> list[Path]:
    """Returns the image and array files in a folder, sorted. Subfolders are searched only if `nested` is true.

    Raises:
        RefusedInput: a file looks like an image but cannot be read, or `find_images` raises this error.
    """
    return find_images(folder, nested).all_readable()
