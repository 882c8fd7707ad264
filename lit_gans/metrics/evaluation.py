"""FID, Inception Score and class coverage from one pass of an extractor."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.inception import InceptionScore

from lit_gans.errors import RefusedInput
from lit_gans.metrics.extractor import Extractor
from lit_gans.random import forked, mix

_CONFIDENT = 0.9  # a sample counts for a class at this probability or more
_COVERED = 0.02  # a class is covered by at least this share of the samples
_SPLITS = 10


class _Passed(nn.Module):
    """Lets features through to torchmetrics, so that the extractor runs once for all metrics."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features

    def forward(self, features: Tensor) -> Tensor:
        return features


def to_uint8(images: Float[Tensor, "n c h w"]) -> UInt8[Tensor, "n c h w"]:
    """Rounds images in [0, 1] to uint8.

    Raises:
        FloatingPointError: an image is not finite: the training has diverged.
    """
    if not torch.isfinite(images).all():
        raise FloatingPointError("generated images are not finite: the training has diverged.")
    return images.mul(255).round().clamp(0, 255).to(torch.uint8)


class Evaluation:
    """Compares generated images with real ones by an extractor's features.

    On several ranks each brings its share of the images; the values are those of all of them.

    Args:
        extractor: the features; its name ends every key.
        device: where the extractor runs.
        seed: of the Inception Score's splits.
    """

    def __init__(self, extractor: Extractor, device: torch.device, seed: int = 0) -> None:
        self.extractor, self.device, self.seed = extractor.to(device), device, seed
        passed = _Passed(extractor.num_features)
        self._fid = FrechetInceptionDistance(passed, reset_real_features=False).to(device)
        self._halves = FrechetInceptionDistance(passed).to(device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it keeps all class logits: they are few numbers an image
            self._inception_score = InceptionScore(_Passed(0), splits=_SPLITS).to(device)
        self._counts = torch.zeros(max(1, extractor.num_classes), device=device)
        self._has_reference = False

    @torch.no_grad()
    def add_real(self, batches: Iterable[Tensor]) -> None:
        """Takes in the real images, uint8 (n, c, h, w), once; every second image makes one of the two halves."""
        for images in batches:
            features, _ = self.extractor(images.to(self.device))
            self._fid.update(features, real=True)
            self._halves.update(features[::2], real=True)
            self._halves.update(features[1::2], real=False)
        self._has_reference = True

    @property
    def has_reference(self) -> bool:
        """Whether the real images are in."""
        return self._has_reference

    def real_halves(self) -> float:
        """Returns the FID between two halves of the real images: what a perfect generator could reach."""
        return self._halves.compute().item()

    @torch.no_grad()
    def measure(self, batches: Iterable[Tensor], num: int) -> dict[str, float]:
        """Returns the metrics of generated images.

        Args:
            batches: this rank's images, uint8 (n, c, h, w).
            num: how many images there are on all ranks together.

        Raises:
            RefusedInput: fewer images than the Inception Score's splits need.
        """
        if num < 2 * _SPLITS:
            raise RefusedInput(f"{num} samples are too few for {_SPLITS} splits of the Inception Score: use more.")
        self._fid.reset()
        self._inception_score.reset()
        self._counts.zero_()
        for images in batches:
            features, logits = self.extractor(images.to(self.device))
            self._fid.update(features, real=False)
            self._inception_score.update(logits)
            if self.extractor.num_classes:
                probability, label = logits.softmax(1).max(1)
                self._counts += label[probability >= _CONFIDENT].bincount(minlength=self.extractor.num_classes)
        values = {"fid": self._fid.compute().item()}
        with forked():
            torch.manual_seed(mix(self.seed, "inception score"))
            values["is"] = self._inception_score.compute()[0].item()
        if self.extractor.num_classes:
            if torch.distributed.is_available() and torch.distributed.is_initialized():
                torch.distributed.all_reduce(self._counts)
            values["classes_covered"] = float((self._counts >= _COVERED * num).sum())
        return {
            f"metric/{name}" if name == "classes_covered" else f"metric/{name}_{self.extractor.name}": value
            for name, value in values.items()
        }
