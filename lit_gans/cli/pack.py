"""`lit-gans pack`: packs a data set ahead of time."""

from __future__ import annotations

from typing import Any

from lit_gans.common.errors import RefusedInput
from lit_gans.data.base import ImageData
from lit_gans.data.packed.datamodule import PackedData
from lit_gans.data.packed.writer import list_of_skipped
from lit_gans.data.sources.streaming import write_stream


def pack(data: ImageData, stream: str | None = None) -> dict[str, Any]:
    """Packs what is not packed yet, reads it once against its checksum, and says what it holds.

    Args:
        data: a source of pictures.
        stream: a new folder that takes the images as a stream too, to be copied to object storage: see `Streaming`.

    Returns:
        The path, the sizes, and the pictures left out.

    Raises:
        RefusedInput: the source makes its images itself, a bad picture, a damaged file, or no new folder for a stream.
    """
    if not isinstance(data, PackedData):
        raise RefusedInput(f"data: {type(data).__name__} makes its images itself, there is nothing to pack.")
    fresh = not data.packed_path.exists()  # packing lists what it leaves out
    packed = data.packed
    packed.verify()
    num, channels, size, _ = packed.images.shape
    print(f"{num} images of {size}x{size}, {channels} channels, checksum right: {packed.path}")
    if not fresh or not packed.about["skipped"]:
        print("\n".join(list_of_skipped(packed.about["skipped"])) or "no picture was left out")
    if stream is not None:
        write_stream(data, stream)
        print(f"as a stream: {stream}")
    return {"path": str(packed.path), **packed.about}
