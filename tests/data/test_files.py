"""Which files of a folder are images, and what is said of files that look like images and are not read."""

import io
import os
import re
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile

from lit_gans.common.errors import RefusedInput
from lit_gans.data.decoding import read_picture
from lit_gans.data.files import find_images, images_in, readable_endings
from lit_gans.data.sources.folder import Folder
from lit_gans.data.sources.paired import PairedFolder
from lit_gans.data.sources.unpaired import Unpaired
from lit_gans.metrics.folder import SHEETS, PictureFolder

COLOR = (10, 200, 30)
HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"


def of_pillow(kind, size=(8, 8), **settings):
    buffer = io.BytesIO()
    Image.new("RGB", size, COLOR).save(buffer, kind, **settings)
    return buffer.getvalue()


def write(root, files):
    """Writes files, those without content as pictures of their extension."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(of_pillow("PNG") if content is None else content)
    return root


@pytest.fixture
def folder(tmp_path):
    return partial(Folder, str(tmp_path / "in"), image_size=8, cache=str(tmp_path / "cache"), batch_size=1)


FORMATS = {
    "a.JPG": "JPEG",
    "a.jfif": "JPEG",
    "a.jpe": "JPEG",
    "a.mpo": "JPEG",
    "a.png": "PNG",
    "a.apng": "PNG",
    "a.webp": "WEBP",
    "a.jp2": "JPEG2000",
    "a.j2k": "JPEG2000",
    "a.tga": "TGA",
    "a.pcx": "PCX",
    "a.ico": "ICO",
    "a.dib": "DIB",
    "a.pnm": "PPM",
    "a.sgi": "SGI",
    "a.TIFF": "TIFF",
    "wrong.png": "JPEG",
    "unknown.jpg_large": "JPEG",
    "without_an_ending": "PNG",
    "0a1b2c.dat": "WEBP",
    "bitmap": "BMP",
    "portable": "PPM",
    "paintbrush": "PCX",
    "graphics": "SGI",
    "icon": "ICO",
}
Image.init()
if "QOI" in Image.SAVE:  # Pillow 11.0 only reads it
    FORMATS |= {"a.qoi": "QOI"}
if ".avif" in readable_endings():
    FORMATS |= {"a.avif": "AVIF", "avif": "AVIF"}


def test_what_pillow_opens_is_read_by_its_extension_or_its_content(tmp_path, folder):
    settings = {"JPEG": {"quality": 100}, "AVIF": {"quality": 100}, "ICO": {"sizes": [(8, 8)]}}
    write(tmp_path / "in", {name: of_pillow(kind, **settings.get(kind, {})) for name, kind in FORMATS.items()})
    images = folder().packed.images
    assert len(images) == len(FORMATS)
    assert (images.float().mean((2, 3)) - torch.tensor(COLOR)).abs().max() < 4


NO_IMAGES = {
    "notes.txt": b"a.png",
    "labels.csv": b"file,class\n",
    "a.json": b"{}",
    "a.xml": b"<a/>",
    "README": b"P5 is a format",
    "captions.cap": b"a cat",
    "archive.zip": b"PK\x03\x04",
    "images.tar.gz": b"\x1f\x8b",
    "clip.mp4": b"\0\0\0\x18ftypmp42",
    "clip.mpg": b"\0\0\x01\xba",
    "paper.pdf": b"%PDF-1.5",
    "page.ps": b"%!PS-Adobe",
    "a.h5": b"\x89HDF\r\n\x1a\n",
    "Thumbs.db": b"\xd0\xcf\x11\xe0",
    "desktop.ini": b"[.ShellClassInfo]",
    "empty": b"",
    "a.jpg.part": b"\xff\xd8\xff\xe0",
    "a.png~": b"\x89PNG\r\n\x1a\n",
    "video.THM": b"\xff\xd8\xff\xe0",
    "._a.png": b"\0\x05\x16\x07",
    ".DS_Store": b"\0\0\0\x01Bud1",
}
NO_FOLDERS = (
    ".thumbnails",
    "@eaDir/a.png",
    "__MACOSX",
    ".Trash-1000/files",
    "lost+found",
    "$RECYCLE.BIN",
    ".AppleDouble",
    "#recycle",
    ".ipynb_checkpoints",
    "System Volume Information",
    "CaptureOne/Cache/Thumbnails",
    "_vti_cnf",
    "FOUND.000",
    "@sharesnap",
    "@SynoResource",
    "LOST.DIR",
    "@Recycle",
)


def test_other_files_and_hidden_and_thumbnail_folders_are_no_images(tmp_path, folder, caplog):
    root = write(tmp_path / "in", {"a.png": None, **NO_IMAGES, **{f"{name}/b.jpg": None for name in NO_FOLDERS}})
    found = find_images(root, nested=True)
    assert (found.images, found.unread) == ([root / "a.png"], {})
    assert len(folder().packed.images) == 1
    assert images_in(root) == [root / "a.png"]
    assert "subfolders" not in caplog.text


def test_they_are_no_classes_either(tmp_path, folder):
    names = {f"{name}/b.jpg": None for name in NO_FOLDERS}
    write(tmp_path / "in", {"cat/a.png": None, "dog/b.png": None, **names})
    assert folder().classes == ["cat", "dog"]


UNREAD = {
    "a.heic": (HEIC, r"the package pillow-heif reads HEIC: install it with: .*\[heic\]"),
    "b.HIF": (HEIC, "the package pillow-heif reads HEIC"),
    "photo": (HEIC, "the package pillow-heif reads HEIC"),
    "a.jxl": (b"\xff\x0a", "the package pillow-jxl-plugin reads JPEG XL"),
    "a.svg": (b"<svg/>", "a vector drawing has no pixels: convert it to PNG"),
    "a.NEF": (b"MM\0*", "the raw format of a camera is not supported: convert it to TIFF or PNG"),
    "a.dng": (of_pillow("TIFF"), "the raw format of a camera is not supported"),  # a small preview
    "a.gpr": (of_pillow("TIFF"), "the raw format of a camera is not supported"),
    "brain.nii": (b"\0\0", "the format is not supported"),
    "a.exr": (b"\x76\x2f\x31\x01", "the format is not supported: convert it to PNG or TIFF"),
    "a.xwd": (b"\0\0", "the format is not supported"),
    "scan": (b"\0" * 128 + b"DICM", "the format is not supported"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_what_looks_like_an_image_and_is_not_read_is_counted_and_named(tmp_path, folder, caplog, name):
    content, reason = UNREAD[name]
    write(tmp_path / "in", {"a.png": None, name: content})
    path = tmp_path / "in" / name
    said = rf"1 of the 2 images in {tmp_path / 'in'} cannot be read: 1 .*, such as {re.escape(str(path))} \({reason}"
    with pytest.raises(RefusedInput, match=rf"{said}.*data.on_error=skip leaves them out"):
        folder()
    packed = folder(on_error="skip").packed
    assert len(packed.images) == 1
    (line,) = packed.about["skipped"]
    assert re.match(rf"{re.escape(name)} cannot be read as an image: {reason}", line)
    assert "1 left out (data.on_error=skip)" in caplog.text
    with pytest.raises(RefusedInput, match=f"{said}.*convert them, or move them to another folder"):
        PictureFolder(tmp_path / "in")
    with pytest.raises(RefusedInput, match=f"cannot be read as an image: {reason}"):
        read_picture(path, [])


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("a.cap", "TIFF", "the raw format of a camera is not supported"),
        (
            "a.txt",
            "JPEG",
            "its extension .txt does not match its contents: rename it with",
        ),
        ("page.html", "PNG", "its extension .html does not match its contents"),
        ("a.heic", "JPEG", "its extension .heic does not match its contents"),
        ("a.dng", "JPEG", "its extension .dng does not match its contents"),
    ],
)
def test_images_under_the_ending_of_something_else_are_counted(tmp_path, name, kind, reason):
    root = write(tmp_path / "in", {"a.png": None, name: of_pillow(kind)})
    found = find_images(root)
    assert (found.images, found.unread.keys()) == ([root / "a.png"], {root / name})
    assert reason in found.unread[root / name]


@pytest.mark.parametrize("ending", [".heic", ".dng", ".npy", ".exr"])
def test_an_image_with_the_file_extension_of_another_format_is_an_error(tmp_path, ending):
    path = write(tmp_path, {f"a{ending}": of_pillow("JPEG")}) / f"a{ending}"
    with pytest.raises(RefusedInput, match=f"its extension {ending} does not match its contents: rename it with the"):
        read_picture(path, [])


def test_files_that_are_left_out_are_counted_by_extension_and_change_the_packed_images(tmp_path, folder):
    write(tmp_path / "in", {"a.png": None, "b.png": None, **{f"{index}.heic": HEIC for index in range(10)}})
    with pytest.raises(RefusedInput, match=r"10 of the 12 images in .* cannot be read: 10 .heic, such as .*0.heic"):
        folder()
    first = folder(on_error="skip").packed
    assert len(first.about["skipped"]) == 10
    (tmp_path / "in/more.jxl").write_bytes(b"\xff\x0a")
    assert len(folder(on_error="skip").packed.about["skipped"]) == 11, "packed again, with another count"
    for path in (tmp_path / "in").glob("*.png"):
        path.unlink()
    with pytest.raises(RefusedInput, match=r"11 of the 11 images in .* cannot be read: 10 .heic, .*; 1 .jxl, such as"):
        folder(on_error="skip")


def test_a_class_of_unread_images_is_empty(tmp_path, folder, caplog):
    write(tmp_path / "in", {"cat/a.png": None, "dog/b.heic": HEIC})
    data = folder(on_error="skip")
    assert data.classes == ["cat"]
    assert "1 of 2 class folders contain no images, such as" in caplog.text


@pytest.mark.parametrize("data", [PairedFolder, Unpaired])
@pytest.mark.parametrize("part", ["", "val/"])
def test_pairs_and_domains_count_them_too(tmp_path, data, part):
    write(tmp_path / "in", {f"{domain}/{name}a.png": None for domain in "AB" for name in ("train/", "val/")})
    (tmp_path / f"in/A/{part or 'train/'}b.heic").write_bytes(HEIC)
    given = {"image_size": 8, "cache": str(tmp_path / "cache")}
    with pytest.raises(RefusedInput, match=r"1 of the 2 images in .* cannot be read: 1 .heic"):
        data(str(tmp_path / "in"), **given)
    made = data(str(tmp_path / "in"), on_error="skip", **given)
    packed = made.packed_held_out if part else made.packed
    assert "b.heic cannot be read as an image: the package pillow-heif" in "".join(packed.about["skipped"])


def test_an_image_under_a_wrong_extension_gives_the_reason_of_its_content(tmp_path):
    (tmp_path / "a.jpg").write_bytes(HEIC)
    with pytest.raises(RefusedInput, match=r"a.jpg cannot be read as an image: the package pillow-heif reads HEIC"):
        read_picture(tmp_path / "a.jpg", [])
    with pytest.raises(RefusedInput, match=r"row 3 cannot be read as an image: the package pillow-heif reads HEIC"):
        read_picture(HEIC, [], name="row 3")
    (tmp_path / "b.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n")
    with pytest.raises(RefusedInput, match="cannot identify image file"):  # Ghostscript would execute it
        read_picture(tmp_path / "b.png", [])


def test_images_of_a_plugin_that_the_user_registered_are_read(tmp_path, folder, monkeypatch):
    class Plugin(ImageFile.ImageFile):
        format = "HEIF"

        def _open(self):
            self._size, self._mode = (8, 8), "RGB"
            self.tile = []
            self.im = Image.new("RGB", (8, 8), COLOR).im

    write(tmp_path / "in", {"a.heic": HEIC})
    for registry, key, value in (
        (Image.OPEN, "HEIF", (Plugin, lambda head: head[4:8] == b"ftyp")),
        (Image.EXTENSION, ".heic", "HEIF"),
    ):
        monkeypatch.setitem(registry, key, value)
    monkeypatch.setattr(Image, "ID", [*Image.ID, "HEIF"])
    assert folder().packed.images[0, :, 0, 0].tolist() == list(COLOR)


def test_images_in_subfolders_that_are_not_read_are_counted(tmp_path, caplog):
    root = write(tmp_path / "in", {"a.png": None, "more/b.png": None, "more/in/c.jpg": None})
    assert images_in(root) == [root / "a.png"]
    assert "is read without its subfolders: Its subfolders contain 2 images, such as" in caplog.text
    (root / "a.png").unlink()
    with pytest.raises(RefusedInput, match=r"contains no images .* Its subfolders contain 2 images"):
        images_in(root)


def test_sheets_in_an_evaluated_folder_are_skipped_and_arrays_are_an_error(tmp_path, caplog):
    caplog.set_level("INFO")
    root = write(tmp_path / "in", {"a.png": None, SHEETS[0]: None})
    assert len(PictureFolder(root)) == 1
    assert f"{root}: skipping grid.png (sheets of several images)" in caplog.text
    np.save(root / "b.npy", np.zeros((8, 8)))
    with pytest.raises(RefusedInput, match=r"1 of the 3 files in .* are arrays, such as .*b.npy"):
        PictureFolder(root)


def test_images_in_subfolders_are_evaluated_which_is_told_if_others_are_not_in_one(tmp_path, caplog):
    write(tmp_path / "classes", {"a/x.png": None, "b/y.png": None})
    assert len(PictureFolder(tmp_path / "classes")) == 2
    assert not caplog.text
    root = write(tmp_path / "in", {"a.png": None, "old/b.png": None})
    assert len(PictureFolder(root)) == 2
    assert f"1 of its 2 images are in subfolders, such as {root / 'old/b.png'}, and are measured, too" in caplog.text


def test_each_folder_is_visited_once_on_a_path(tmp_path):
    root = write(tmp_path / "in", {"a/x.png": None, "b/y.png": None})
    (root / "a/all").symlink_to(root)
    (root / "a/other").symlink_to(root / "b")
    (root / "b/other").symlink_to(root / "a")
    (root / "b/above").symlink_to(tmp_path)
    (root / "again").symlink_to(root / "a")
    names = [path.relative_to(root).as_posix() for path in find_images(root, nested=True).images]
    assert names == ["a/other/y.png", "a/x.png", "again/other/y.png", "again/x.png", "b/other/x.png", "b/y.png"]


def test_a_folder_is_a_pack_by_its_content_and_thumbnails_of_a_library_are_left_out(tmp_path, folder):
    names = ["cat/a.png", "dog.packed/b.png", "packs/images.packed/c.png"]
    root = write(tmp_path / "in", dict.fromkeys(names))
    data = folder()
    assert (data.classes, len(data.packed.images)) == (["cat", "dog.packed", "packs"], 3)
    data.packed_path.rename(root / data.packed_path.name)
    library = ("L.photoslibrary/resources/derivatives", "L.photolibrary/Thumbnails")
    write(root, {f"{name}/d.png": None for name in library} | {"derivatives/e.png": None})
    assert {path.name for path in find_images(root, nested=True).images} == {"a.png", "b.png", "c.png", "e.png"}


def test_a_broken_link_is_an_image_and_a_pipe_is_none(tmp_path):
    root = write(tmp_path / "in", {"a.png": None})
    (root / "b.png").symlink_to("nowhere.png")
    os.mkfifo(root / "pipe")
    assert images_in(root) == [root / "a.png", root / "b.png"]


def test_moved_data_with_files_that_are_left_out_are_not_packed_again(tmp_path, folder):
    root = write(tmp_path / "in", {"a.png": None, "more/b.heic": HEIC})
    path = folder(on_error="skip").packed_path
    moved = Folder(str(root.rename(tmp_path / "moved")), image_size=8, cache=str(tmp_path / "cache"), on_error="skip")
    assert moved.packed_path == path
