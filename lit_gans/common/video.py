"""Videos of images: GIF and MP4, by the ending of the path."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from lit_gans.common.atomic import replacing, unfinished
from lit_gans.common.errors import RefusedInput, import_extra, refuse_below

VIDEOS = (".gif", ".mp4")
_SHORTER = 256  # pixels that the shorter side has at least: players blur what they enlarge


def is_video(path: str | Path | None) -> bool:
    """Returns whether a path ends as a video does."""
    return path is not None and Path(path).suffix.lower() in VIDEOS


def refuse_video(path: str | Path) -> None:
    """Raises `RefusedInput` if the package that writes a video is missing: MP4 needs the extra `video`."""
    if Path(path).suffix.lower() == ".mp4":
        import_extra("av", "video")


def write_video(frames: UInt8[Tensor, "n c h w"], path: str | Path, fps: int = 24) -> Path:
    """Writes a GIF, which repeats, or an MP4 (H.264, yuv420p), which browsers play; replaces an earlier file.

    Small frames are enlarged by a whole factor, without smoothing, until their shorter side has 256 pixels. GIF rounds
    the time of a frame to hundredths of a second, and has at most 256 colors in a frame.

    Args:
        frames: gray images or images in color.
        path: file that ends in `.gif` or `.mp4`.
        fps: frames per second, 1 to 50.

    Returns:
        The path of the file.

    Raises:
        RefusedInput: the extra `video` is missing, the number of frames per second is out of range, or frames
            have other channels.
    """
    path = Path(path)
    refuse_below(1, fps=fps)
    if fps > 50:
        raise RefusedInput(f"fps={fps} must be at most 50, the fastest that browsers play as a GIF.")
    if frames.shape[1] not in (1, 3):
        raise RefusedInput(f"{path}: a video has gray or color images, not {frames.shape[1]} channels.")
    refuse_video(path)
    factor = max(1, -(-_SHORTER // min(frames.shape[2:])))
    frames = frames.repeat_interleave(factor, 2).repeat_interleave(factor, 3).cpu()
    with replacing(path, unfinished(path).with_suffix(path.suffix)) as part:
        (_write_gif if path.suffix.lower() == ".gif" else _write_mp4)(frames, part, fps)
    return path


def _write_gif(frames: Tensor, path: Path, fps: int) -> None:
    pictures = [Image.fromarray(frame.permute(1, 2, 0).squeeze(2).numpy()) for frame in frames]
    pictures[0].save(path, format="GIF", save_all=True, append_images=pictures[1:], duration=round(1000 / fps), loop=0)


def _write_mp4(frames: Tensor, path: Path, fps: int) -> None:
    import av

    # half of the colors' resolution in each direction: sides are even
    frames = torch.nn.functional.pad(frames, (0, frames.shape[3] % 2, 0, frames.shape[2] % 2)).expand(-1, 3, -1, -1)
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as file:
        stream = file.add_stream("libx264", rate=fps, options={"crf": "18"})
        stream.height, stream.width = frames.shape[2:]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            pixels = frame.permute(1, 2, 0).contiguous().numpy()
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode())
