"""What one rank does in the tests of sharded evaluation."""

import os

import torch
from torch import distributed

from lit_gans.metrics import FrechetInceptionDistance
from lit_gans.metrics.evaluator import Evaluation
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.scores.class_coverage import ClassCoverage
from lit_gans.metrics.scores.fid import FID
from lit_gans.metrics.scores.inception_score import InceptionScore
from lit_gans.metrics.scores.kid import KID
from lit_gans.metrics.scores.mifid import MiFID
from lit_gans.metrics.scores.prdc import PRDC

SCORES = (FID(), InceptionScore(), ClassCoverage(), KID(5, 20), MiFID(1.0), PRDC(3))


class Pixels(Extractor):
    """Features and logits are the pixels themselves."""

    name = "pixels"
    num_features = num_logits = num_classes = 4

    def forward(self, images):
        pixels = images.flatten(1).float() / 10
        return pixels, pixels


def images(num, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 100, (num, 1, 2, 2), generator=generator).to(torch.uint8)


def evaluate(cache=None, fake_ends=(), real_size=16):
    """Real images in turn; of the generated ones rank r has those from `fake_ends[r - 1]` to `fake_ends[r]`."""
    distributed.init_process_group("gloo")
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    assert int(os.environ["RANK"]) == rank
    evaluation = Evaluation(Pixels(), torch.device("cpu"), 0, SCORES)
    calls = []
    batches = images(100, 0).split(real_size)
    own = (calls.append(1) or batch for index, batch in enumerate(batches) if index % world_size == rank)
    evaluation.add_real(own, cache)
    start = 0 if rank == 0 else fake_ends[rank - 1]
    part = images(61, 1)[start : fake_ends[rank]]
    values = evaluation.measure(part.split(8) if len(part) else [], 61)
    return {"values": values, "halves": evaluation.real_halves(), "extracted": len(calls)}


def scores(ends):
    """Values of scores of images whose real and generated ones rank r has from `ends[r - 1]` to `ends[r]`."""
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    found = {}
    for score in (FrechetInceptionDistance(Pixels()),):
        for real, every in ((True, images(100, 0)), (False, images(61, 1))):
            own = every[0 if rank == 0 else ends[rank - 1] : ends[rank]]
            if len(own):
                score.update(own, real)
        found[type(score).__name__] = score.compute()
    return found
