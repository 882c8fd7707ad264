"""Rules for the settings of a training on pictures of one's own, each with its source, as pure functions.

StyleGAN2-ADA is Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data": `--cfg=auto` of the
authors' `train.py`. What is marked as tried was measured with these networks (docs/guides/photos.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lit_gans.common.size import Size, as_size, sides
from lit_gans.data.survey import Survey

SIDES = (32, 64, 128, 256)  # pixels of the shorter side
WIDTHS = (32, 64, 128)
_SHAPES = 30_000  # real images of 64 pixels until shapes are right; tried
_ENOUGH = 2 * _SHAPES
_WIDER = 4  # times as many, until a wider network is worth its time
EVALUATION_SHARE = 0.1  # of the time
SAMPLES = (2000, 1000)  # of an evaluation
_MOST_EVALUATIONS, _GRIDS = 10, 60

Seconds = Callable[[Size, int], float]  # of a real image in a training, by size and width


@dataclass(frozen=True)
class Evaluation:
    """When a training is measured.

    Args:
        num_samples: generated images of a measurement.
        times: number of measurements, the first before the training.
        seconds: of all of them, those for the real images included.
    """

    num_samples: int
    times: int
    seconds: float


def image_size(pictures: Survey, shorter: int) -> Size:
    """Returns the size of images with a given shorter side: a rectangle if the pictures have the same shape.

    The longer side is a multiple of a quarter of the shorter one, since the networks double a map of 4 pixels.
    """
    if not pictures.same_shape:
        return shorter
    step = shorter // 4
    height, width = pictures.height, pictures.width
    longer = max(shorter, round(max(height, width) / min(height, width) * 4) * step)
    return as_size([shorter, longer] if height <= width else [longer, shorter])


def possible_sizes(pictures: Survey) -> list[Size]:
    """Returns the sizes that need no enlarged pictures, the smallest first; at least one."""
    smaller = min(pictures.height, pictures.width)
    return [image_size(pictures, side) for side in SIDES if side <= smaller or side == SIDES[0]]


def shapes(size: Size) -> float:
    """Returns the number of real images until a training at this size has learned shapes."""
    return _SHAPES * _area(size) / 64**2


def enough(size: Size) -> float:
    """Returns the number of real images that are enough for a training at this size."""
    return _ENOUGH * _area(size) / 64**2


def network(sizes: list[Size], widths: tuple[int, ...], seconds: float, per_image: Seconds) -> tuple[Size, int]:
    """Returns the largest images that a training of some seconds learns at the smallest width, then the largest width
    at which it sees four times as many.

    Args:
        sizes, widths: possible values, the smallest first.
        seconds: time of the training.
        per_image: seconds of a real image.
    """
    learned = [size for size in sizes if seconds / per_image(size, widths[0]) >= enough(size)]
    size = learned[-1] if learned else sizes[0]
    wide = [width for width in widths if seconds / per_image(size, width) >= _WIDER * enough(size)]
    return size, wide[-1] if wide else widths[0]


def scaled(measured: float, at: tuple[Size, int]) -> Seconds:
    """Returns an estimate for all sizes and widths from one measurement.

    Convolutions take time in proportion to pixels and, with the overhead of narrow ones, to about the power 1.7 of the
    width.
    """
    size, width = at
    return lambda other, wide: measured * _area(other) / _area(size) * (wide / width) ** 1.7


def batch_size(shorter: int, num: int) -> int:
    """Returns the batch of StyleGAN2-ADA on one GPU, at most the largest power of two that the pictures fill."""
    return min(4096 // shorter, 32, 1 << max(0, num.bit_length() - 1))


def gamma(size: Size, batch: int) -> float:
    """Returns the weight of R1 of StyleGAN2-ADA: 0.0002 for each pixel, divided by the batch."""
    return float(f"{0.0002 * _area(size) / batch:.3g}")


def half_life(batch: int) -> dict[str, Any]:
    """Returns the half-life of StyleGAN2-ADA's averaged generator: a twentieth of the images so far, at most 10,000 for
    a batch of 32.
    """
    most = batch * 10_000 // 32
    return {"_target_": "lit_gans.Linear", "start": 0.0, "end": float(most), "over": 20 * most, "unit": "images"}


def r3gan(size: Size) -> dict[str, Any]:
    """Returns the weights of R1 and R2 for R3GAN, which fall to a tenth.

    A power law through the presets of the authors' `train.py`, 2 at 64 pixels and 150 at 256; at 32 it gives 0.23, and
    of 1, 0.2 and 0.05, 0.2 was best (experiment=r3gan_emoji).
    """
    gamma = float(f"{2 * (_area(size) / 64**2) ** 1.56:.2g}")
    return {"model.r1_gamma.start": gamma, "model.r1_gamma.end": gamma / 10}


def evaluation(
    seconds: float, num: int, per_real: float, per_fake: float, samples: Sequence[int] = SAMPLES
) -> Evaluation | None:
    """Returns the most frequent evaluation that takes at most a tenth of the time; None if two take longer.

    Args:
        seconds: of the training.
        num: number of real images, which are measured once.
        per_real, per_fake: seconds of measuring a real image, and of generating and measuring one.
        samples: possible numbers of generated images of a measurement, the best first.
    """
    left = EVALUATION_SHARE * seconds - num * per_real
    for each in samples:
        times = min(_MOST_EVALUATIONS, int(left / (each * per_fake)))
        if times >= 2:
            return Evaluation(each, times, num * per_real + times * each * per_fake)
    return None


def iterations(seconds: float, per_iteration: float) -> int:
    """Returns a number of iterations that take about this time, with two digits."""
    num = max(1, int(seconds / per_iteration))
    digits = max(0, len(str(num)) - 2)
    return num // 10**digits * 10**digits


def grids_every(max_steps: int) -> int:
    """Returns the number of iterations between two grids of samples, of which a training writes about sixty."""
    return max(1, max_steps // _GRIDS)


def _area(size: Size) -> int:
    height, width = sides(size)
    return height * width
