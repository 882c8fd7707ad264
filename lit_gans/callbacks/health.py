"""The health of a training in words, from a few measurements of its samples and discriminators.

Every distance is between pictures that are reduced to 32x32 pixels, in units of the mean distance between two real
ones, so that no threshold depends on the images or their size. The thresholds lie between what trainings of each kind
have shown, most of them broken on purpose: `tests/callbacks/health_runs.py` makes them, and the verdict is tested on
their records.
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

SURE = 0.99  # share of images about which a discriminator that wins is right
TWIN = 0.1  # distance below which two samples are twins
MANY_TWINS = 0.25  # share of samples, beyond that of real images
MANY_COPIES = 0.2  # share of samples
STILL = 0.02  # mean change of samples between two looks
FAR = 0.3  # energy distance of samples that do not resemble real images
BETTER = 0.9  # times the energy distance before
STALE = 5  # measurements without a better value


@dataclass(frozen=True)
class Look:
    """What was measured at an iteration.

    Attributes:
        iteration: number of the generator iteration.
        accuracy: of each discriminator whose scores have a threshold, the share of real images or of samples that it
            classifies correctly, whichever is smaller.
        distance: energy distance between samples and real images (Székely and Rizzo 2013), about 0 if they are
            distributed alike; None if the batch has no two different real images.
        change: mean distance between images of the same latents at this look and at the one before, None at the first
            look and if the batch has no two different real images.
        twins: share of samples with another one, of the same class, closer than `TWIN`, minus that share of the real
            images; 0 for translations, which vary as much as their inputs; None if the batch has no two different real
            images.
        classes: classes of which most samples are twins.
        copies: share of samples that are copies of training images, see `copied`; None if it was not measured.
    """

    iteration: int
    accuracy: dict[str, float]
    distance: float | None
    change: float | None = None
    twins: float | None = 0.0
    classes: tuple[int, ...] = ()
    copies: float | None = None


def energy_distance(real: Float[Tensor, "n d"], fake: Float[Tensor, "m d"]) -> Float[Tensor, ""]:
    """Returns twice the mean distance between the kinds, minus those within them, over that between real ones.

    NaN or infinite without two different real images.
    """
    within = torch.pdist(real).mean()
    return (2 * torch.cdist(real, fake).mean() - within - torch.pdist(fake).mean()) / within


def twins(
    images: Float[Tensor, "n d"], radius: Float[Tensor, ""], labels: Int64[Tensor, " n"] | None = None
) -> Bool[Tensor, " n"]:
    """Returns which images have another one, of the same class, within a radius: (n,), bool."""
    near = torch.cdist(images, images) < radius
    if labels is not None:
        near &= labels[:, None] == labels
    return near.fill_diagonal_(False).any(1)


def copied(samples: Float[Tensor, "n d"], real: Float[Tensor, "m d"]) -> float:
    """Returns the share of samples that are closer to a real image than half of its distance to the next real image.

    Alaa et al. (2022, section 2.2) compare with the full distance, which is the smaller one for about half of the
    samples of a perfect generator. Half of it is far below what differs between two real images of an object.

    Args:
        samples: generated images.
        real: different real images, two or more.
    """
    distances, nearest = torch.cdist(samples, real).min(1)
    to_others = torch.cdist(real[nearest], real)
    to_others[torch.arange(len(nearest)), nearest] = torch.inf
    return (distances < to_others.min(1).values / 2).float().mean().item()


def verdict(looks: Sequence[Look], patience: int, stale: str | None = None) -> tuple[Kind, str]:
    """Returns the kind of health, and in words: the measurement, and what to try if something is wrong.

    A failure is one that all looks of the last `patience` iterations show, or, of distances to the real images, their
    median; a younger training is learning. In order, with the thresholds above:

    - memorizing: more than a fifth of the samples are copies of training images.
    - diverging: samples are far from real images, come no closer, and were less than half as far at a look before.
    - discriminator wins: it has been right about more than 99 % of the images, and samples come no closer to real ones.
    - stalled: samples of the same latents have not changed.
    - collapsing: more than a quarter of the samples have a twin of the same class.
    - stalled, too: samples are far from real images and come no closer, or the last `STALE` measurements of a metric
      had no better value.

    Looks without a distance do not count where one is needed; without any, only copies and the metric tell a failure.

    Args:
        looks: all looks of the training, or the last ones; one at least.
        patience: number of iterations.
        stale: key of a metric that has had no better value in its last `STALE` measurements, if any.
    """
    last = looks[-1]
    recent = [look for look in looks if look.iteration > last.iteration - patience]
    if len(recent) == len(looks):
        return "learning", f"{_in_words(last.distance)}, too early to say more"
    copies = [look.copies for look in recent if look.copies is not None]
    if copies and fmean(copies) > MANY_COPIES:
        return "memorizing", (
            f"{copies[-1]:.0%} of the samples are copies of training images. Try more images, model.augmentation, or"
            " an earlier checkpoint."
        )
    distances = _measured(recent)
    if not distances:
        return ("learning", _in_words(None)) if stale is None else ("stalled", _without_better(stale))
    distance, closer = median(distances), _falls(distances)
    best = min(_measured(looks[: -len(recent)]), default=distance)
    if not closer and distance > max(FAR, 2 * best):
        return "diverging", (
            f"the distance to the real images is {distance:.2f} and does not fall; it was {best:.2f} at best. Try a"
            " smaller learning rate, or a larger r1_gamma, from an earlier checkpoint on."
        )
    sure = [name for name in last.accuracy if all(look.accuracy[name] > SURE for look in recent)]
    if sure and not closer:
        return "discriminator wins", (
            f"the {' and the '.join(sure)} has been right about more than {SURE:.0%} of the images for {patience}"
            " iterations: the generator learns nothing. Try a smaller learning rate for the discriminator, a larger"
            " r1_gamma, or model.augmentation if there are few images."
        )
    changes = [look.change for look in recent if look.change is not None]
    if changes and max(changes) < STILL:
        return "stalled", (
            f"samples have changed by less than {STILL:.0%} of the distance between real images from look to look. If"
            " they are good, the training has converged; otherwise try a larger learning rate."
        )
    alike = [look.twins for look in recent if look.twins is not None]
    if alike and min(alike) > MANY_TWINS:
        where = f", in class {', '.join(map(str, last.classes))}" if last.classes else ""
        return "collapsing", (
            f"{alike[-1]:.0%} of the samples look like another one{where}: the generator makes few different images."
            " Try a larger r1_gamma (2 to 4 times), a smaller learning rate, or model.augmentation if there are few"
            " images."
        )
    if not closer and distance > FAR:
        return "stalled", (
            f"the distance to the real images is {distance:.2f} and does not fall. Try another learning rate, a larger"
            " r1_gamma, or a larger network."
        )
    if stale is not None:
        return "stalled", _without_better(stale)
    also = f"; {max(0.0, alike[-1]):.0%} of the samples look like another one" if alike else ""
    return "learning", f"{_in_words(distance)}, at first {_measured(looks)[0]:.2f}{also}"


def _measured(looks: Sequence[Look]) -> list[float]:
    return [look.distance for look in looks if look.distance is not None]


def _in_words(distance: float | None) -> str:
    if distance is None:
        return "no distance to the real images, since a batch has no two different ones"
    return f"distance to the real images {max(0.0, distance):.2f}"


def _without_better(key: str) -> str:
    return (
        f"the last {STALE} measurements had no better {key}. If samples are good, the training has converged; otherwise"
        " try a larger network, or a smaller learning rate from an earlier checkpoint on."
    )


def _falls(values: Sequence[float]) -> bool:
    """Returns whether the mean of the second half is smaller than that of the first half."""
    half = len(values) // 2
    return half > 0 and fmean(values[half:]) < BETTER * fmean(values[:half])
