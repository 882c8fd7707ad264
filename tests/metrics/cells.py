"""Scores, images and evaluators that are quick to compute, and what one rank does in the tests of several."""

import torch
from torch import distributed

from lit_gans.data.base import ImageData, ImagesInMemory
from lit_gans.data.digests import fingerprint
from lit_gans.metrics import (
    CMMD,
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
from lit_gans.metrics.scores.classes import LabeledScore


class Pixels(Extractor):
    """Features and logits are the pixels themselves."""

    name = "pixels"
    num_features = num_logits = num_classes = 4

    def forward(self, images):
        pixels = images.flatten(1).float() / 10
        return pixels, pixels


class Labeled:
    """Real images with classes, of which the last has few images if so asked."""

    image_size, channels, num_classes = 2, 1, 4

    def __init__(self, few=None):
        self.images, self.few = images(100, 0), few

    def real_batches(self, batch_size=256):
        return iter(self.images.split(batch_size))

    def real_labels(self):
        labels = torch.arange(100) // 10 % 4
        return labels if self.few is None else torch.cat([torch.arange(100 - self.few) % 3, torch.full((self.few,), 3)])


def all_scores(feature=None):
    return {
        "fid": FrechetInceptionDistance(feature),
        "inception_score": InceptionScore(feature),
        "class_coverage": ClassCoverage(feature),
        "kid": KernelInceptionDistance(feature, subsets=5, subset_size=20),
        "cmmd": CMMD(feature),
        "mifid": MemorizationInformedFrechetInceptionDistance(feature, cosine_distance_eps=1.0),
        "prdc": PrecisionRecallDensityCoverage(feature, nearest=3),
        "intra_fid": IntraFID(feature, num_classes=4),
        "class_accuracy": ClassAccuracy(feature),
    }


def images(num, seed, shift=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(0, 100, (num, 1, 2, 2), generator=generator) + shift).to(torch.uint8)


REAL, FAKE, ASKED = Labeled(), images(61, 1), torch.arange(61) % 4


def evaluator_of(extractor=None, scores=None, num_samples=61, seed=0, batch_size=16, **settings):
    return Evaluator(extractor or Pixels(), scores or all_scores(), num_samples, batch_size, seed, **settings)


def add(score, real_rows=slice(None), fake_rows=slice(None)):
    """Updates a score with batches of the real and of the generated images, and returns it."""
    for real, given, labels, rows in (
        (True, REAL.images, REAL.real_labels(), real_rows),
        (False, FAKE, ASKED, fake_rows),
    ):
        for batch, classes in zip(given[rows].split(10), labels[rows].split(10), strict=True):
            score.update(batch, real=real, **({"labels": classes} if isinstance(score, LabeledScore) else {}))
    return score


def values_alone():
    """Returns the values of scores alone, by their keys in an evaluator."""
    found = {}
    for score in all_scores(Pixels()).values():
        values = add(score).named(score.compute())
        found |= {key: values[name] for name, key in score.keys(Pixels()).items()}
    return found


def _rows(ends):
    rank = distributed.get_rank()
    return slice(0 if rank == 0 else ends[rank - 1], ends[rank])


def evaluate(store=False, fake_ends=(), batch_size=16):
    """Returns what an evaluator measures on this rank; `_rows(fake_ends)` are its generated images."""
    distributed.init_process_group("gloo")
    extractor, calls = Pixels(), []
    extractor.register_forward_hook(lambda _, given, __: calls.append(len(given[0])))
    one = evaluator_of(extractor, batch_size=batch_size, num_classes=4)
    one.add_real(REAL, store)
    extracted = sum(calls)
    rows = _rows(fake_ends)
    values = [one.measure(FAKE[rows].split(8) if len(FAKE[rows]) else [], ASKED[rows]) for _ in range(2)]
    assert values[0] == values[1]
    return {"values": values[0], "halves": one.real_halves, "extracted": extracted}


def scores(ends):
    """Returns values of scores alone, with `_rows(ends)` as this rank's real and generated images."""
    distributed.init_process_group("gloo")
    given = all_scores(Pixels()).items()
    return {name: add(score, _rows(ends), _rows(ends)).named(score.compute()) for name, score in given}


class Counted(ImageData):
    """The real images, of which it notes the positions that are read."""

    num_classes = 4

    def __init__(self, has_digest):
        super().__init__(image_size=2)
        self.has_digest, self.read = has_digest, []

    def make_dataset(self):
        data = self

        class Noting(ImagesInMemory):
            def __getitem__(self, rows):
                data.read += rows.tolist()
                return super().__getitem__(rows)

        return Noting(REAL.images, REAL.real_labels())

    def real_fingerprint(self):
        return fingerprint([REAL.images]) if self.has_digest else super().real_fingerprint()


def counted(has_digest):
    """Returns the positions of the real images that this rank reads to choose scores and to extract, and the values."""
    distributed.init_process_group("gloo")
    data, one = Counted(has_digest), evaluator_of(num_classes=4)
    one.choose(data)
    chosen, data.read = data.read, []
    one.extract(data)
    rows = _rows((31, 61))
    return {"chosen": chosen, "extracted": data.read, "values": one.measure(FAKE[rows], ASKED[rows])}
