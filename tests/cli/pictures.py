"""Folders of random images, and the metrics that compare them."""

import torch
from torchvision.utils import save_image

from lit_gans.callbacks import GenerativeMetrics
from lit_gans.metrics import ClassCoverage, FrechetInceptionDistance, InceptionScore, PrecisionRecallDensityCoverage
from lit_gans.metrics.extractors.digits import DigitsExtractor


def write(folder, images):
    folder.mkdir()
    for index, image in enumerate(images):
        save_image(image, folder / f"{index:03d}.png")
    return str(folder)


def pictures(num, seed, size=16):
    return torch.randint(0, 256, (num, 1, size, size), generator=torch.Generator().manual_seed(seed)) / 255


def metrics(cache=True, **scores):
    default = {"fid": FrechetInceptionDistance(), "inception_score": InceptionScore(), "classes": ClassCoverage()}
    scores = default | {"prdc": PrecisionRecallDensityCoverage()} | scores
    return GenerativeMetrics(DigitsExtractor(), num_samples=30, batch_size=7, scores=scores, cache=cache)
