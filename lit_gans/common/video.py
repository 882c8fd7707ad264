"""Writes images as a video: GIF or MP4, depending on the extension of the path."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from lit_gans.common.atomic import replacing, unfinished
from lit_gans.common.errors import RefusedInput, import_extra, refuse_below

VIDEOS = (".gif", ".mp4")
_SHORTER = 256  # minimum number of pixels of the shorter side; smaller videos are blurred when players enlarge them


def is_video(path: str | Path | None) -> bool:
    """Returns whether a path has the extension of a video."""
    return path is not None and Path(path).suffix.lower() in VIDEOS


def refuse_video(path: str | Path, fps: int) -> None:
    """Raises `RefusedInput` if the package for the video format is missing, or if `fps` is out of range.

    MP4 requires the extra `video`.
    """
    refuse_below(1, fps=fps)
    if fps > 50:
        raise RefusedInput(f"fps={fps} must be at most 50, the maximum at which browsers play a GIF.")
    if Path(path).suffix.lower() == ".mp4":
        import_extra("av", "video")


def write_video(frames: UInt8[Tensor, "n c h w"], path: str | Path, fps: int = 24) -> Path:
    """Writes a looping GIF, or an MP4 (H.264, yuv420p) that browsers can play. An existing file is replaced.

    Small frames are enlarged by an integer factor, without smoothing, until their shorter side has at least 256 pixels.
    GIF rounds the duration of a frame to hundredths of a second, and supports at most 256 colors per frame.

    Args:
        frames: grayscale or RGB images.
        path: path of the file, with the extension `.gif` or `.mp4`.
        fps: number of frames per second, from 1 to 50.

    Returns:
        The path of the file.

    Raises:
        RefusedInput: the extra `video` is missing, `fps` is out of range, or the frames are neither grayscale nor RGB.
    """
    path = Path(path)
    if frames.shape[1] not in (1, 3):
        raise RefusedInput(f"{path}: a video needs grayscale or RGB images, not {frames.shape[1]} channels.")
    refuse_video(path, fps)
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

    # yuv420p halves the resolution of the colors in each direction, so both sides must be even
    frames = torch.nn.functional.pad(frames, (0, frames.shape[3] % 2, 0, frames.shape[2] % 2)).expand(-1, 3, -1, -1)
    with av.open(str(path), "w", options={"movflags": "+faststart"}) as file:
        stream = file.add_stream("libx264", rate=fps, options={"crf": "18"})
        stream.height, stream.width = frames.shape[2:]
        stream.pix_fmt = "yuv420p"
        for frame in frames:
            pixels = frame.permute(1, 2, 0).contiguous().numpy()
            file.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        file.mux(stream.encode())
