"""`lit-gans pack data=NAME data.root=PATH`: decodes and resizes the images of a dataset into one packed file.

Examples:
    lit-gans pack data=cifar10 data.root=FOLDER
    lit-gans pack data.root=PHOTOS data.image_size=64 format=stylegan output=photos.zip
    lit-gans pack data.root=PHOTOS stream=NEW_FOLDER
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import as_size, size_text
from lit_gans.config.run_folder import output_file, refuse_folder
from lit_gans.data.base import ImageData
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.stylegan import refuse_for_stylegan, write_stylegan
from lit_gans.data.packed.writer import list_of_little_used, list_of_skipped
from lit_gans.data.sources.streaming import Streaming, refuse_filled, write_stream


def pack(
    data: ImageData,
    format: Literal["packed", "stylegan"] = "packed",
    output: str | None = None,
    stream: str | None = None,
) -> dict[str, Any]:
    """Packs a data source if it has not been packed yet, verifies the checksum, and prints a summary.

    Args:
        data: data source to pack.
        format: `stylegan` also writes the images as a zip archive for the code of StyleGAN and R3GAN.
        output: path of the zip archive; null uses the name of the packed images, in the current folder.
        stream: new folder to which the images are also written, as a stream for object storage; see `Streaming`.

    Returns:
        The path of the packed file, the sizes of the images, and the skipped files.

    Raises:
        RefusedInput: If the source generates its images, a file cannot be read, the packed file is damaged, the format
            cannot store the images, the archive would replace the original images, or the folder `stream` is not empty.
    """
    if not isinstance(data, PackedData):
        origin = "streams images that are packed" if isinstance(data, Streaming) else "generates its images"
        raise RefusedInput(f"data: {type(data).__name__} {origin}, so there is nothing to pack.")
    if stream is not None:
        refuse_folder(stream, "stream")
        refuse_filled(Path(stream))
    archive = None
    if format == "stylegan":
        archive = Path(output or data.packed_path.with_suffix(".zip").name)
        refuse_for_stylegan(data, archive)
        root = getattr(data, "root", None)
        if root is not None and archive.exists() and archive.samefile(root):
            raise RefusedInput(f"output={archive} is data.root, whose pictures it would replace: choose another name.")
        output_file(archive)
    elif output is not None:
        raise RefusedInput(f"output={output}: the packed images are in data.cache: add format=stylegan for an archive.")
    is_new = not data.packed_path.exists()  # packing prints the list of skipped files itself
    packed = data.packed
    packed.verify()
    num, channels, *size = packed.images.shape
    print(f"{num} images of {size_text(as_size(size))}, {channels} channels, checksum correct: {packed.path}")
    if not is_new:
        print("".join(f"{line}\n" for line in list_of_little_used(packed)), end="")
    if not is_new or not packed.about["skipped"]:
        print("\n".join(list_of_skipped(packed.about["skipped"])) or "no file was skipped")
    if archive is not None:
        write_stylegan(data, archive)
        print(f"for StyleGAN: {archive}")
    if stream is not None:
        write_stream(data, stream)
        print(f"as a stream: {stream}")
    return {"path": str(packed.path), **packed.about}
