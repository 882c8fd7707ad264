"""Rules that choose the settings of `lit-gans plan`, as pure functions with their sources.

StyleGAN2-ADA refers to Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data", and to
`--cfg=auto` of the authors' `train.py`. Values marked as measured were measured with the networks of this package
(docs/guides/photos.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lit_gans.common.size import Size, as_size, sides
from lit_gans.data.survey import Survey

SIDES = (32, 64, 128, 256)  # possible sizes of the shorter side, in pixels
WIDTHS = (32, 64, 128)
_SHAPES = 30_000  # number of real 64-pixel images after which generated images have correct shapes; measured
_ENOUGH = 2 * _SHAPES  # number of real 64-pixel images that are enough for a training run
_WIDER = 4  # a wider network is chosen only if it can process this many times the number of images that are enough
EVALUATION_SHARE = 0.1  # maximum share of the time that is spent on evaluation
SAMPLES = (2000, 1000)  # possible numbers of samples per evaluation, preferred number first
_MAX_EVALUATIONS = 10
_GRIDS = 60  # number of sample grids in a training run

Seconds = Callable[[Size, int], float]  # training time per real image in seconds, as a function of size and width


@dataclass(frozen=True)
class Evaluation:
    """Schedule of the evaluations of a training run.

    Args:
        num_samples: number of generated images per evaluation.
        times: number of evaluations, including the evaluation before the first iteration.
        seconds: total duration in seconds, including the feature extraction of the real images.
    """

    num_samples: int
    times: int
    seconds: float


def image_size(pictures: Survey, shorter: int) -> Size:
    """Returns an image size with this shorter side: a rectangle if all images have the same shape, otherwise a square.

    The longer side is a multiple of a quarter of the shorter side, because the first feature map of a network has a
    shorter side of 4 pixels. Every stage doubles the size of the feature map.
    """
    if not pictures.same_shape:
        return shorter
    step = shorter // 4
    height, width = pictures.height, pictures.width
    longer = max(shorter, round(max(height, width) / min(height, width) * 4) * step)
    return as_size([shorter, longer] if height <= width else [longer, shorter])


def possible_sizes(pictures: Survey) -> list[Size]:
    """Returns the sizes that do not enlarge the images, smallest first. The smallest size is always included."""
    smaller = min(pictures.height, pictures.width)
    return [image_size(pictures, side) for side in SIDES if side <= smaller or side == SIDES[0]]


def shapes(size: Size) -> float:
    """Returns the number of real images after which training at this image size has learned shapes."""
    return _SHAPES * _area(size) / 64**2


def enough(size: Size) -> float:
    """Returns the number of real images that are enough to train at this image size."""
    return _ENOUGH * _area(size) / 64**2


def network(sizes: list[Size], widths: tuple[int, ...], seconds: float, per_image: Seconds) -> tuple[Size, int]:
    """Returns the image size and the width of the networks for a training run of a given duration.

    The size is the largest size for which the training processes enough images with the smallest width. The width is
    the largest width with which the training processes four times as many images.

    Args:
        sizes: possible sizes, smallest first.
        widths: possible widths, smallest first.
        seconds: duration of the training in seconds.
        per_image: training time per real image, in seconds.
    """
    possible_sizes = [size for size in sizes if seconds / per_image(size, widths[0]) >= enough(size)]
    size = possible_sizes[-1] if possible_sizes else sizes[0]
    possible_widths = [width for width in widths if seconds / per_image(size, width) >= _WIDER * enough(size)]
    return size, possible_widths[-1] if possible_widths else widths[0]


def scaled(measured: float, at: tuple[Size, int]) -> Seconds:
    """Returns an estimate of the training time per image for all sizes and widths, from one measurement.

    The time of convolutions is proportional to the number of pixels, and to the width to the power of about 1.7,
    because narrow convolutions have overhead.

    Args:
        measured: measured training time per image, in seconds.
        at: size and width of the measurement.
    """
    size, width = at
    return lambda other, wide: measured * _area(other) / _area(size) * (wide / width) ** 1.7


def batch_size(shorter: int, num: int) -> int:
    """Returns the batch size of StyleGAN2-ADA on one GPU, limited to the largest power of two up to `num`."""
    return min(4096 // shorter, 32, 1 << max(0, num.bit_length() - 1))


def gamma(size: Size, batch: int) -> float:
    """Returns the weight of R1 in StyleGAN2-ADA: 0.0002 times the number of pixels, divided by the batch size."""
    return float(f"{0.0002 * _area(size) / batch:.3g}")


def half_life(batch: int) -> dict[str, Any]:
    """Returns the half-life of the averaged generator in StyleGAN2-ADA, as a schedule.

    The half-life is 1/20 of the number of images so far, and at most 10,000 images for a batch size of 32.
    """
    maximum = batch * 10_000 // 32
    return {
        "_target_": "lit_gans.LinearSchedule",
        "start": 0.0,
        "end": float(maximum),
        "over": 20 * maximum,
        "unit": "images",
    }


def r3gan(size: Size) -> dict[str, Any]:
    """Returns the weights of R1 and R2 for R3GAN, which decrease to 1/10 of the initial value.

    The initial value is a power law through the presets of the authors' `train.py`: 2 at 64 pixels and 150 at 256
    pixels. At 32 pixels, the power law gives 0.23. Of the tried weights 1, 0.2 and 0.05, 0.2 was best on drawings of
    this size.
    """
    gamma = float(f"{2 * (_area(size) / 64**2) ** 1.56:.2g}")
    return {"model.r1_gamma.start": gamma, "model.r1_gamma.end": gamma / 10}


def evaluation(
    seconds: float, num: int, per_real: float, per_fake: float, samples: Sequence[int] = SAMPLES
) -> Evaluation | None:
    """Returns the most frequent evaluation that takes at most 10 % of the time, or None if two evaluations take longer.

    Args:
        seconds: duration of the training in seconds.
        num: number of real images, whose features are extracted once.
        per_real: time to extract the features of a real image, in seconds.
        per_fake: time to generate an image and to extract its features, in seconds.
        samples: possible numbers of generated images per evaluation, preferred number first.
    """
    left = EVALUATION_SHARE * seconds - num * per_real
    for num_samples in samples:
        times = min(_MAX_EVALUATIONS, int(left / (num_samples * per_fake)))
        if times >= 2:
            return Evaluation(num_samples, times, num * per_real + times * num_samples * per_fake)
    return None


def iterations(seconds: float, per_iteration: float) -> int:
    """Returns the number of iterations that fit in `seconds`, rounded down to two significant digits."""
    num = max(1, int(seconds / per_iteration))
    digits = max(0, len(str(num)) - 2)
    return num // 10**digits * 10**digits


def grids_every(max_steps: int) -> int:
    """Returns the number of iterations between two sample grids, so that a run writes about 60 grids."""
    return max(1, max_steps // _GRIDS)


def _area(size: Size) -> int:
    height, width = sides(size)
    return height * width
