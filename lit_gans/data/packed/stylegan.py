"""Writes packed images as a zip archive that the code of StyleGAN and R3GAN reads, as `dataset_tool.py` writes it."""

from __future__ import annotations

import io
import json
import logging
import zipfile
from pathlib import Path

from PIL import Image

from lit_gans.common.atomic import replacing
from lit_gans.common.errors import RefusedInput
from lit_gans.common.progress import follow
from lit_gans.common.size import as_size, size_text
from lit_gans.data.packed.datamodule import PackedData, TranslationData

logger = logging.getLogger(__name__)


def refuse_for_stylegan(data: PackedData, path: Path) -> None:
    """Raises `RefusedInput` if StyleGAN's code could not read the images of a source from a zip archive at `path`."""
    height, width = data.frame.shape[1:]
    if path.suffix != ".zip":  # StyleGAN's code recognizes an archive by its extension
        raise RefusedInput(f"output={path}: format=stylegan writes a zip archive, whose name must end with .zip.")
    if isinstance(data, TranslationData):
        raise RefusedInput(f"format=stylegan: {type(data).__name__} has pairs, or images of two domains.")
    if data.channels not in (1, 3) or data.frame.dtype != "uint8":
        raise RefusedInput(
            f"format=stylegan: the images have {data.channels} channels of {data.frame.dtype}: set data.channels=3 or"
            " 1, and data.dtype=uint8."
        )
    if height != width:
        raise RefusedInput(
            f"format=stylegan: the images are {size_text(as_size((height, width)))}, expected squares: set"
            f" data.image_size={min(height, width)}."
        )
    if width & (width - 1):
        logger.warning("the code of StyleGAN trains only on sizes that are powers of two, such as 64 or 128")


def write_stylegan(data: PackedData, path: Path) -> None:
    """Writes the packed images and their labels as a zip archive; see `refuse_for_stylegan`.

    The archive contains uncompressed PNG files named 00000/img00000000.png and so on, in the order of the packed
    images, and `dataset.json` with the class index of each image, or null without classes.
    """
    packed, names = data.packed, []
    with replacing(path) as part, zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
        followed = follow(f"writing {path.name}", packed.images.split(1), len(packed.images))
        for index, image in enumerate(followed):
            names.append(f"{index // 1000:05d}/img{index:08d}.png")
            file = io.BytesIO()
            pixels = image[0].permute(1, 2, 0).squeeze(2).contiguous().numpy()
            Image.fromarray(pixels).save(file, "PNG", compress_level=0)
            archive.writestr(zipfile.ZipInfo(names[-1]), file.getvalue())  # a fixed date: the same archive every time
        labels = [*zip(names, packed.labels.tolist(), strict=True)] if data.num_classes else None
        archive.writestr(zipfile.ZipInfo("dataset.json"), json.dumps({"labels": labels}))
