"""Features, preprocessing and distances of FD-DINOv2 and CMMD beside the authors' code, with random weights."""

import numpy as np
import pytest
import torch
from PIL import Image

from lit_gans.metrics import CMMD
from lit_gans.metrics.extractors.base import Features
from lit_gans.metrics.scores.fid import Gaussian, frechet_distance
from tests.metrics.extractors import test_clip as clip
from tests.metrics.extractors import test_dinov2 as dinov2
from tests.metrics.extractors.transformer import drawn, images, inputs
from tests.references.conftest import checkout

DINOV2, DGM_EVAL, CMMD_PYTORCH = "facebookresearch+dinov2", "layer6ai-labs+dgm-eval", "sayakpaul+cmmd-pytorch"
SIZES = ((32, 32), (300, 260), (100, 500))


def pictures(pixels):
    return [Image.fromarray(image.permute(1, 2, 0).numpy()) for image in pixels]


@pytest.fixture
def small_dinov2(tmp_path):
    state = drawn(dinov2.shapes(), 0)
    torch.save(state, tmp_path / "dinov2.pth")
    return state, dinov2.Small(str(tmp_path / "dinov2.pth"), sha256=None)


@pytest.mark.filterwarnings("ignore:xFormers is not available")
def test_dinov2(same, monkeypatch, small_dinov2):
    state, extractor = small_dinov2
    pixels = images(3, 40, 60)
    sizes = {"embed_dim": dinov2.WIDTH, "depth": dinov2.DEPTH, "num_heads": dinov2.HEADS}
    with checkout(DINOV2) as load, torch.no_grad():
        vits = load("dinov2.models.vision_transformer")
        theirs = vits.DinoVisionTransformer(518, 14, init_values=1.0, block_chunks=0, **sizes).eval()
        theirs.load_state_dict(state)
        monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # theirs rounds the positions to float32
        expected = theirs(inputs(extractor, pixels))
    same("DINOv2", extractor(pixels)[0], expected)


def test_the_input_of_fd_dinov2(monkeypatch, small_dinov2):
    packages = {"dgm_eval": {}, "dgm_eval__models": {}}
    monkeypatch.setattr(torch.hub, "load", lambda *_: torch.nn.Identity())
    with checkout(DGM_EVAL, **packages) as load:
        encoder = load("dgm_eval.models.dinov2").DINOv2Encoder()
        for size in SIZES:
            pixels = images(2, *size)
            expected = torch.stack([*map(encoder.transform, pictures(pixels))])
            assert torch.equal(inputs(small_dinov2[1], pixels), expected), "to the bit"


@pytest.mark.filterwarnings("ignore:The `disp` argument:DeprecationWarning")
def test_fd(same):
    features = torch.randn(2, 500, 6).matmul(torch.randn(6, 6)) + torch.randn(2, 1, 6)
    with checkout(DGM_EVAL, dgm_eval={}, dgm_eval__metrics={}) as load:
        fd = load("dgm_eval.metrics.fd")
        (mean, covariance), (other, others) = (fd.compute_statistics(each.numpy()) for each in features)
        expected = fd.compute_FD_with_stats(mean, other, covariance, others)
    found = frechet_distance(*map(Gaussian.of_rows, features))
    same("FD of dgm-eval", torch.tensor(found), torch.tensor(float(np.real(expected))))


def test_the_input_of_cmmd(tmp_path):
    torch.save(drawn(clip.shapes(), 0), tmp_path / "clip.pt")
    extractor = clip.Small(str(tmp_path / "clip.pt"), sha256=None)
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    with checkout(CMMD_PYTORCH) as load:
        reader = load("io_util").CMMDDataset(str(tmp_path), clip.SIZE)
        for size in SIZES:
            pixels = images(2, *size)
            squares = [reader._center_crop_and_resize(picture, clip.SIZE) for picture in pictures(pixels)]
            expected = (np.stack(squares) / 255 - np.array(mean)) / np.array(std)
            assert torch.equal(inputs(extractor, pixels), torch.from_numpy(expected).permute(0, 3, 1, 2)), "to the bit"


def test_cmmd(same):
    real, fake = torch.randn(80, 768), torch.randn(60, 768) + 0.5
    score = CMMD()
    for features, is_real in ((real, True), (fake, False)):
        score.update(Features(features, features[:, :0]), is_real)
    with checkout(CMMD_PYTORCH) as load:
        units = (torch.nn.functional.normalize(each.float().double()).numpy() for each in (real, fake))
        expected = load("distance").mmd(*units)
    same("CMMD", score.compute(), expected)
