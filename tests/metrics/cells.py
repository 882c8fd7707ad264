"""What one rank does in the tests of sharded evaluation."""

import os

import torch
from torch import distributed

from lit_gans.common.errors import RefusedInput
from lit_gans.metrics import (
    ClassAccuracy,
    ClassCoverage,
    FrechetInceptionDistance,
    InceptionScore,
    IntraFID,
    KernelInceptionDistance,
    MemorizationInformedFrechetInceptionDistance,
    PrecisionRecallDensityCoverage,
)
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.base import Extractor


class Pixels(Extractor):
    """Features and logits are the pixels themselves."""

    name = "pixels"
    num_features = num_logits = num_classes = 4

    def forward(self, images):
        pixels = images.flatten(1).float() / 10
        return pixels, pixels


def all_scores(feature=None):
    return {
        "fid": FrechetInceptionDistance(feature),
        "inception_score": InceptionScore(feature),
        "class_coverage": ClassCoverage(feature),
        "kid": KernelInceptionDistance(feature, subsets=5, subset_size=20),
        "mifid": MemorizationInformedFrechetInceptionDistance(feature, cosine_distance_eps=1.0),
        "prdc": PrecisionRecallDensityCoverage(feature, nearest=3),
    }


def images(num, seed, shift=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(0, 100, (num, 1, 2, 2), generator=generator) + shift).to(torch.uint8)


def evaluator_of(extractor, scores=None, num_samples=100, seed=0, batch_size=32):
    return Evaluator(extractor, scores, num_samples, batch_size, seed)


def measure(evaluator, fake, batch_size=33):
    evaluator.num_samples = len(fake)
    return evaluator.measure(fake.split(batch_size))


def evaluator(batch_size=16, extractor=None, scores=None):
    return Evaluator(extractor or Pixels(), scores or all_scores(), num_samples=61, batch_size=batch_size, seed=0)


def evaluate(store=False, fake_ends=(), real_size=16):
    """Of the generated images, rank r has those from `fake_ends[r - 1]` to `fake_ends[r]`."""
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    assert int(os.environ["RANK"]) == rank
    extractor, calls = Pixels(), []
    extractor.register_forward_hook(lambda _, given, __: calls.append(len(given[0])))
    one = evaluator(real_size, extractor)
    one.add_real(images(100, 0), store)
    extracted = sum(calls)
    start = 0 if rank == 0 else fake_ends[rank - 1]
    share = images(61, 1)[start : fake_ends[rank]]
    values = one.measure(share.split(8) if len(share) else [])
    assert one.measure(share.split(8) if len(share) else []) == values
    return {"values": values, "halves": one.real_halves, "extracted": extracted}


def scores(ends):
    """Values of scores alone; of the real and generated images, rank r has those from `ends[r - 1]` to `ends[r]`.

    Also returns the names of those that were asked for a value too early.
    """
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    found, refused = {}, []
    for name, score in all_scores(Pixels()).items():
        try:
            score.update(images(0, 0), real=True)
            score.compute()
        except RefusedInput:
            refused.append(name)
        for real, every in ((True, images(100, 0)), (False, images(61, 1))):
            for batch in every[0 if rank == 0 else ends[rank - 1] : ends[rank]].split(10):
                score.update(batch, real)
        found[name] = score.named(score.compute())
    return found, refused


class Labeled:
    """Real images with classes."""

    image_size, channels, num_classes = 2, 1, 4

    def __init__(self, few=None):
        self.images, self.few = images(100, 0), few

    def real_batches(self, batch_size=256):
        return iter(self.images.split(batch_size))

    def real_labels(self):
        """Returns the classes, of which the last has few images if so asked."""
        labels = torch.arange(100) // 10 % 4
        return labels if self.few is None else torch.cat([torch.arange(100 - self.few) % 3, torch.full((self.few,), 3)])


def class_scores(**settings):
    return {"intra_fid": IntraFID(**settings), "class_accuracy": ClassAccuracy()}


def class_values(ends=None):
    """Values of an evaluator of a generator with classes, whose images ranks share as in `evaluate`."""
    if ends is None:
        rows = slice(0, 61)
    else:
        distributed.init_process_group("gloo")
        rank = distributed.get_rank()
        rows = slice(0 if rank == 0 else ends[rank - 1], ends[rank])
    scores = {"fid": FrechetInceptionDistance(), **class_scores()}
    one = Evaluator(Pixels(), scores, num_samples=61, batch_size=16, num_classes=4)
    one.add_real(Labeled())
    share = images(61, 1)[rows]
    return one.measure(share.split(8) if len(share) else [], (torch.arange(61) % 4)[rows])
