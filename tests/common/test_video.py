"""Videos are read back by the libraries that players use: frames, sizes, times and pixels."""

import sys

import pytest
import torch
from PIL import Image

from lit_gans.common.errors import RefusedInput
from lit_gans.common.video import write_video


def frames(num=5, channels=3, height=300, width=270):
    """Smooth pictures that differ, larger than what is enlarged."""
    down, right = torch.linspace(0, 1, height)[:, None], torch.linspace(0, 1, width)
    pictures = [torch.stack([down * right, down + 0 * right, right + 0 * down][:channels]) for _ in range(num)]
    shares = torch.linspace(0.2, 1, num)[:, None, None, None]
    return (torch.stack(pictures) * shares).mul(255).byte()


def from_gif(path):
    with Image.open(path) as image:
        assert image.info["loop"] == 0, "it repeats"
        pictures, times = [], []
        for index in range(image.n_frames):
            image.seek(index)
            times.append(image.info["duration"])
            pictures.append(torch.frombuffer(bytearray(image.convert("RGB").tobytes()), dtype=torch.uint8))
        return torch.stack(pictures).unflatten(1, (image.height, image.width, 3)).permute(0, 3, 1, 2), times


def from_mp4(path):
    av = pytest.importorskip("av")
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        assert (stream.codec_context.name, stream.format.name) == ("h264", "yuv420p"), "browsers play no other"
        pictures = [torch.from_numpy(frame.to_ndarray(format="rgb24")) for frame in file.decode(stream)]
        return torch.stack(pictures).permute(0, 3, 1, 2), [1000 / stream.average_rate] * len(pictures)


@pytest.mark.parametrize(("name", "read"), [("walk.gif", from_gif), ("walk.MP4", from_mp4)])
@pytest.mark.parametrize("channels", [1, 3])
def test_a_video_has_the_frames_that_were_written(tmp_path, name, read, channels):
    written = frames(channels=channels)
    found, times = read(write_video(written, tmp_path / name, fps=20))
    assert (found.shape, times) == ((5, 3, 300, 270), [50] * 5)
    assert (found.float() - written.float()).abs().mean() < 5


@pytest.mark.parametrize(("name", "read", "size"), [("a.gif", from_gif, (261, 261)), ("a.mp4", from_mp4, (262, 262))])
def test_small_frames_are_enlarged_by_a_whole_factor_and_mp4_has_even_sides(tmp_path, name, read, size):
    small = torch.randint(0, 2, (2, 1, 87, 87), generator=torch.Generator().manual_seed(0), dtype=torch.uint8) * 255
    found, _ = read(write_video(small, tmp_path / name))
    assert found.shape[2:] == size
    near = (found[:, :1, 1:261:3, 1:261:3].float() - small.float()).abs()
    assert near.mean() < 3


def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch):
    for pictures, fps, sentence in (
        (frames(), 51, "fps=51 must be at most 50"),
        (frames()[:, :2], 24, "not 2 channels"),
    ):
        with pytest.raises(RefusedInput, match=sentence):
            write_video(pictures, tmp_path / "walk.gif", fps)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(RefusedInput, match=r"the package av is missing.*\[video\]"):
        write_video(frames(), tmp_path / "walk.mp4")
    assert not [*tmp_path.iterdir()]
