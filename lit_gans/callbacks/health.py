"""Diagnoses the training from measurements of its samples and discriminators.

Distances are computed between images that are downscaled to 32x32 pixels. They are divided by the mean distance between
two real images, so that no threshold depends on the images or their size. The thresholds separate recorded healthy runs
from failed runs. Most of the failed runs were broken on purpose. `tests/callbacks/health_runs.py` records these runs,
and the tests check `verdict` on the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

Kind = Literal["learning", "stalled", "collapsing", "discriminator wins", "diverging", "memorizing"]

SURE = 0.99  # accuracy above which a discriminator wins
TWIN = 0.1  # distance below which two images are twins
MANY_TWINS = 0.25  # minimum difference between the shares of twins among samples and among real images for a warning
MANY_COPIES = 0.2  # share of copies among samples above which a warning is logged
STILL = 0.02  # the training is stalled if the mean change of samples between two checks is below this value
FAR = 0.3  # energy distance above which samples do not resemble real images
BETTER = 0.9  # the energy distance falls if its recent mean is below this factor times its earlier mean
STALE = 5  # number of measurements without a better value after which a metric is stale


@dataclass(frozen=True)
class Look:
    """Measurements of one check of the training.

    The distance, the change and the twins are None if the batch does not contain two different real images.

    Attributes:
        iteration: generator iteration of the check.
        accuracy: share of correctly classified real images or of correctly classified samples, whichever is smaller, by
            the discriminator's name. Contains only discriminators whose scores have a decision threshold.
        distance: energy distance between samples and real images (Székely and Rizzo 2013); about 0 if both have the
            same distribution.
        change: mean distance between the images of the same latents at this check and at the previous check; None at
            the first check.
        twins: share of samples that have a twin, minus the share of real images that have a twin. A twin is another
            image of the same class at a distance below `TWIN`. The value is 0 for translations, because they vary as
            their input images do.
        classes: classes in which most samples have twins.
        copies: share of samples that are copies of training images, see `copied`; None if this share was not measured.
    """

    iteration: int
    accuracy: dict[str, float]
    distance: float | None
    change: float | None = None
    twins: float | None = 0.0
    classes: tuple[int, ...] = ()
    copies: float | None = None


def energy_distance(real: Float[Tensor, "n d"], fake: Float[Tensor, "m d"]) -> Float[Tensor, ""]:
    """Returns the energy distance between real and generated images, divided by the mean distance of two real images.

    The energy distance is 2 E|x - y| - E|x - x'| - E|y - y'|, where x and x' are real images, and y and y' generated
    images. The result is NaN or infinite if `real` does not contain two different images.
    """
    within = torch.pdist(real).mean()
    return (2 * torch.cdist(real, fake).mean() - within - torch.pdist(fake).mean()) / within


def twins(
    images: Float[Tensor, "n d"], radius: Float[Tensor, ""], labels: Int64[Tensor, " n"] | None = None
) -> Bool[Tensor, " n"]:
    """Returns a mask of the images that have another image of the same class within a radius.

    Args:
        images: downscaled images as vectors.
        radius: distance below which two images are twins.
        labels: class labels; None compares all images with each other.
    """
    near = torch.cdist(images, images) < radius
    if labels is not None:
        near &= labels[:, None] == labels
    return near.fill_diagonal_(False).any(1)


def copied(samples: Float[Tensor, "n d"], real: Float[Tensor, "m d"]) -> float:
    """Returns the share of samples that are copies of real images.

    A sample is a copy if its distance to the nearest real image is below a threshold. The threshold is half of the
    distance between that real image and its nearest other real image. Alaa et al. (2022, section 2.2) use the full
    distance as the threshold, but about half of the samples of a perfect generator lie below the full distance. Half of
    the distance is far smaller than the distance between two real images of the same object.

    Args:
        samples: generated images.
        real: at least two real images, all different.
    """
    distances, nearest = torch.cdist(samples, real).min(1)
    between_real = torch.cdist(real[nearest], real)
    between_real[torch.arange(len(nearest)), nearest] = torch.inf
    return (distances < between_real.min(1).values / 2).float().mean().item()


def verdict(looks: Sequence[Look], patience: int, stale: str | None = None) -> tuple[Kind, str]:
    """Returns the kind of health, and a sentence that states the measurement and gives advice for a failure.

    A failure is reported if all checks of the last `patience` iterations, at least two checks, show this failure. For
    the distance to the real images, the median of these checks decides, and for copies their mean. A run of at most
    `patience` iterations, or of two checks, is `learning`. The failures are tested in this order, with the thresholds
    of this module:

    - memorizing: more than 20 % of the samples are copies of training images.
    - diverging: samples are far from real images and come no closer, and the smallest distance of an earlier check was
      less than half of the distance.
    - discriminator wins: a discriminator classifies more than 99 % of the images correctly, and samples come no closer
      to real images.
    - stalled: samples of the same latents do not change.
    - collapsing: more than 25 % of the samples have a twin of the same class.
    - stalled: samples are far from real images and come no closer, or the last `STALE` measurements of a metric had no
      better value.

    Failures that depend on the distance are tested only on checks with a distance. If no check has a distance, only
    `memorizing` and a stale metric are detected.

    Args:
        looks: all checks of the training, or the most recent ones; must not be empty.
        patience: number of iterations that a failure must last.
        stale: key of a metric whose last `STALE` measurements had no better value, or None if no metric is stale.
    """
    last = looks[-1]
    within = [look for look in looks if look.iteration > last.iteration - patience]
    recent = within if len(within) > 1 else list(looks[-2:])  # a single check shows no trend
    if len(recent) == len(looks):
        return "learning", f"{_in_words(last.distance)}, too early to say more"
    copies = [look.copies for look in recent if look.copies is not None]
    if copies and fmean(copies) > MANY_COPIES:
        return "memorizing", (
            f"{fmean(copies):.0%} of the samples are copies of training images. Try more images, model.augmentation, or"
            " an earlier checkpoint."
        )
    distances = _measured(recent)
    if not distances:
        return ("learning", _in_words(None)) if stale is None else ("stalled", _without_better(stale))
    distance, closer = median(distances), _falls(distances)
    best = min(_measured(looks[: -len(recent)]), default=distance)
    if not closer and distance > max(FAR, 2 * best):
        return "diverging", (
            f"the distance to the real images is {distance:.2f} and does not fall; its minimum was {best:.2f}. Try to"
            " resume an earlier checkpoint with a smaller learning rate or a larger r1_gamma."
        )
    sure = [name for name in last.accuracy if all(look.accuracy[name] > SURE for look in recent)]
    if sure and not closer:
        return "discriminator wins", (
            f"the {' and the '.join(sure)} has classified more than {SURE:.0%} of the images correctly for {patience}"
            " iterations: the generator learns nothing. Try a smaller learning rate for the discriminator, a larger"
            " r1_gamma, or model.augmentation if there are few images."
        )
    changes = [look.change for look in recent if look.change is not None]
    if changes and max(changes) < STILL:
        return "stalled", (
            f"samples have changed by less than {STILL:.0%} of the distance between real images from check to check. If"
            " the samples are good, the training has converged; otherwise try a larger learning rate."
        )
    alike = [look.twins for look in recent if look.twins is not None]
    if alike and min(alike) > MANY_TWINS:
        where = f", in class {', '.join(map(str, last.classes))}" if last.classes else ""
        return "collapsing", (
            f"{alike[-1]:.0%} of the samples look like another sample{where}: the generator produces few different"
            " images. Try a larger r1_gamma (2 to 4 times), a smaller learning rate, or model.augmentation if there are"
            " few images."
        )
    if not closer and distance > FAR:
        return "stalled", (
            f"the distance to the real images is {distance:.2f} and does not fall. Try another learning rate, a larger"
            " r1_gamma, or a larger network."
        )
    if stale is not None:
        return "stalled", _without_better(stale)
    share = f"; {max(0.0, alike[-1]):.0%} of the samples look like another sample" if alike else ""
    return "learning", f"{_in_words(distance)}, initially {_measured(looks)[0]:.2f}{share}"


def _measured(looks: Sequence[Look]) -> list[float]:
    return [look.distance for look in looks if look.distance is not None]


def _in_words(distance: float | None) -> str:
    if distance is None:
        return "no distance to the real images, because the batch has no two different real images"
    return f"distance to the real images {max(0.0, distance):.2f}"


def _without_better(key: str) -> str:
    return (
        f"the last {STALE} measurements had no better {key}. If the samples are good, the training has converged;"
        " otherwise try a larger network, or resume an earlier checkpoint with a smaller learning rate."
    )


def _falls(values: Sequence[float]) -> bool:
    """Returns whether the mean of the second half is less than `BETTER` times the mean of the first half."""
    half = len(values) // 2
    return half > 0 and fmean(values[half:]) < BETTER * fmean(values[:half])
