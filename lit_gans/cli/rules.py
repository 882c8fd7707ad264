"""Rules that choose the settings of `lit-gans plan`, as pure functions with their sources.

StyleGAN2-ADA refers to Karras et al. 2020, "Training Generative Adversarial Networks with Limited Data", and to
`--cfg=auto` of the authors' `train.py`. Values marked as measured were measured with the networks of this package
(docs/guides/photos.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lit_gans.common.errors import RefusedInput
from lit_gans.common.size import Size, as_size, sides, size_text
from lit_gans.data.survey import Survey

SIDES = (32, 64, 128, 256)  # possible sizes of the shorter side, in pixels
WIDTHS = (32, 64, 128)
_SHAPES = 30_000  # number of real 64-pixel images after which generated images have correct shapes; measured
_ENOUGH = 2 * _SHAPES  # number of real 64-pixel images that are enough for a training run
_WIDER = 4  # a wider network is chosen only if it can process this many times the number of images that are enough
_ENOUGH_BATCH = 32  # batch size with which `_ENOUGH` was measured, and which is preferred on a GPU
_LARGEST_BATCH = {"r3gan": 256}  # smallest total batch size of the authors' presets
_OTHER_LARGEST_BATCH = 64  # largest total batch size of StyleGAN2-ADA
_SMALLEST_BATCH = 8  # smaller batches are chosen only if there are fewer images
MAX_IMAGES = 25_000_000  # number of real images in a training run of StyleGAN2-ADA
_MEMORY_SHARE = 0.8  # share of a GPU's free memory that a training without callbacks can use
EVALUATION_SHARE = 0.1  # maximum share of the time that is spent on evaluation
SAMPLES = (2000, 1000)  # possible numbers of samples per evaluation, preferred number first
_MAX_EVALUATIONS = 10
_GRIDS = 60  # number of sample grids in a training run

Seconds = Callable[[Size, int], float]  # training time per real image in seconds, as a function of size and width


@dataclass(frozen=True)
class Candidate:
    """Possible settings of a training run.

    Args:
        size: image size.
        width: width of the networks.
        batch: batch size.
    """

    size: Size
    width: int
    batch: int


# training time per real image in seconds, or None if the training does not fit into the memory of the device
Measure = Callable[[Candidate], float | None]


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


def candidate_on_cpu(
    sizes: list[Size], widths: tuple[int, ...], batch: Callable[[Size], int], seconds: float, measure: Measure
) -> Candidate:
    """Returns the image size, width and batch size for a training run of a given duration on a CPU.

    Measures one small candidate. On a CPU, the time is proportional to the number of pixels, so that this measurement
    is scaled to all sizes and widths.

    Args:
        sizes: possible sizes, smallest first.
        widths: possible widths, smallest first.
        batch: returns the batch size for an image size.
        seconds: duration of the training in seconds.
        measure: measures a candidate.

    Raises:
        RefusedInput: If the measured candidate does not fit into memory.
    """
    size = sizes[min(1, len(sizes) - 1)]
    first = Candidate(size, widths[0], batch(size))
    time = measure(first)
    if time is None:
        raise RefusedInput(too_large(first))
    size, width = network(sizes, widths, seconds, scaled(time, (size, widths[0])))
    return Candidate(size, width, batch(size))


def candidate_on_gpu(
    sizes: list[Size], widths: tuple[int, ...], batches: list[int], seconds: float, measure: Measure
) -> Candidate:
    """Returns the image size, width and batch size for a training run of a given duration on a GPU.

    A small network takes the time in which the host launches its operations, which says nothing about larger networks.
    Therefore, this function measures the largest candidates first, and every candidate that it returns. A size and a
    width are measured with the first batch size, or with the next one that fits into memory. At the end, larger batch
    sizes are chosen if they fit into memory and leave enough iterations.

    Args:
        sizes: possible sizes, smallest first.
        widths: possible widths, smallest first.
        batches: possible batch sizes, see `batch_sizes`.
        seconds: duration of the training in seconds.
        measure: measures a candidate. Can be called repeatedly for a candidate.

    Raises:
        RefusedInput: If no batch size fits into memory with the smallest size and width.
    """
    upwards = sorted(batches)
    downwards = [batch for batch in upwards[::-1] if batch <= batches[0]]

    def fitting(size: Size, width: int) -> tuple[int, float]:
        """Returns the first batch size that fits into memory and the time per image, which is infinite if none fits."""
        for batch in downwards:
            time = measure(Candidate(size, width, batch))
            if time is not None:
                return batch, time
        return batch, math.inf

    size, width = network(sizes, widths, seconds, lambda size, width: fitting(size, width)[1])
    batch, per_image = fitting(size, width)
    if per_image == math.inf:
        raise RefusedInput(too_large(Candidate(size, width, batch)))
    for larger in upwards[upwards.index(batch) + 1 :]:
        time = measure(Candidate(size, width, larger))
        if time is None or seconds / time < enough(size) * max(1.0, larger / _ENOUGH_BATCH):
            break
        batch = larger
    return Candidate(size, width, batch)


def too_large(candidate: Candidate) -> str:
    """Returns an error message for a candidate that does not fit into memory."""
    return (
        f"the device has not enough free memory for data.batch_size={candidate.batch} with images of"
        f" {size_text(candidate.size)} and model.generator_width={candidate.width}: end other programs that use the"
        " device, or set smaller values."
    )


def fits(peak: int | None, free: int | None) -> bool:
    """Returns whether a training run leaves enough memory for the averaged generator and the evaluation.

    Args:
        peak: peak memory of the training in bytes.
        free: memory that is free before the training in bytes; None if memory is not limited.
    """
    return peak is None or free is None or peak <= _MEMORY_SHARE * free


def network(sizes: list[Size], widths: tuple[int, ...], seconds: float, per_image: Seconds) -> tuple[Size, int]:
    """Returns the image size and the width of the networks for a training run of a given duration.

    The size is the largest size for which the training processes enough images with the smallest width. The width is
    the largest width with which the training processes four times as many images.

    Args:
        sizes: possible sizes, smallest first.
        widths: possible widths, smallest first.
        seconds: duration of the training in seconds.
        per_image: training time per real image, in seconds. Called for the largest candidates first, and only until a
            candidate is fast enough.
    """
    possible_sizes = (size for size in sizes[::-1] if seconds / per_image(size, widths[0]) >= enough(size))
    size = next(possible_sizes, sizes[0])
    possible_widths = (width for width in widths[:0:-1] if seconds / per_image(size, width) >= _WIDER * enough(size))
    return size, next(possible_widths, widths[0])


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
    return min(4096 // shorter, 32, _power_of_two(num))


def batch_sizes(num: int, model: str) -> list[int]:
    """Returns possible batch sizes on a GPU for `num` images, the preferred one first.

    On one GPU, StyleGAN2-ADA prefers 32 images, and fewer for large images only to save memory. With several GPUs, its
    largest batch has 64 images. The presets of R3GAN have at least 256 images.
    """
    limit = _power_of_two(num)
    preferred = min(_ENOUGH_BATCH, limit)
    largest = min(_LARGEST_BATCH.get(model, _OTHER_LARGEST_BATCH), limit)
    powers = (2**exponent for exponent in range(largest.bit_length()))
    return [preferred, *(batch for batch in powers if batch >= _SMALLEST_BATCH and batch != preferred)]


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


def iterations(seconds: float, per_image: float, images: int) -> int:
    """Returns the number of iterations that fit in `seconds`, rounded down to two significant digits.

    The training is not longer than in StyleGAN2-ADA, which trains on 25 million images.

    Args:
        seconds: duration of the training in seconds.
        per_image: training time per real image, in seconds.
        images: number of real images per iteration.
    """
    num = max(1, int(min(seconds / per_image, MAX_IMAGES) / images))
    digits = max(0, len(str(num)) - 2)
    return num // 10**digits * 10**digits


def grids_every(max_steps: int) -> int:
    """Returns the number of iterations between two sample grids, so that a run writes about 60 grids."""
    return max(1, max_steps // _GRIDS)


def _power_of_two(num: int) -> int:
    """Returns the largest power of two up to `num`, and at least 1."""
    return 1 << max(0, num.bit_length() - 1)


def _area(size: Size) -> int:
    height, width = sides(size)
    return height * width
