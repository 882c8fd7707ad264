"""The scaling study's figures for GPUs ("Performance characterization of GANs"), and how well the cost model has them.

CelebA at 64x64, one GPU in each node. The study has more figures; these are those that we have in numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.cost_model import (
    Cluster,
    Link,
    Observation,
    Traffic,
    calibrated,
    compute_seconds,
    step_seconds,
    traffic,
)

# images per second of one node by batch size
ONE_NODE = {
    "dcgan": {8: 486, 16: 833, 32: 1133, 64: 1306, 128: 1378},
    "sngan": {8: 462, 16: 745, 32: 1027, 64: 1211, 128: 1308},
    "wgan_gp": {8: 98, 16: 150, 32: 186, 64: 212, 128: 224},
}
CPU_AT_128 = {"dcgan": 211, "sngan": 172, "wgan_gp": 33}  # images per second of one node's CPU
PARAMETERS = {"dcgan": (3_823_555, 2_766_529), "sngan": (3_821_891, 4_854_977)}  # generator, discriminator
_FLOAT = 4  # bytes


@dataclass(frozen=True)
class Point:
    """A row of the study's scaling tables.

    Args:
        gan: name of the GAN.
        kind: `weak` (128 images per node) or `strong` (128 images in all).
        nodes: number of nodes.
        images_per_second: of all nodes together.
    """

    gan: str
    kind: str
    nodes: int
    images_per_second: float

    @property
    def batch_size(self) -> float:
        """Images per node."""
        return 128 if self.kind == "weak" else 128 / self.nodes


POINTS = (
    Point("dcgan", "weak", 8, 5081),
    Point("dcgan", "strong", 4, 2224),
    Point("dcgan", "strong", 8, 2111),
    Point("sngan", "weak", 8, 5440),
)


def operations(gan: str) -> Traffic:
    """Returns the collective operations of a step, in which each network's gradient is reduced once."""
    generator, discriminator = (_FLOAT * number for number in PARAMETERS[gan])
    return traffic("ddp", generator, discriminator)


def compute(gan: str, batch_size: float) -> float:
    """Returns the study's seconds of a step on one node."""
    return compute_seconds({size: size / speed for size, speed in ONE_NODE[gan].items()}, batch_size)


def observation(point: Point) -> Observation:
    """Returns a row of the study as a measured step."""
    seconds = point.nodes * point.batch_size / point.images_per_second
    return Observation(compute(point.gan, point.batch_size), operations(point.gan), point.nodes, seconds)


def lost(point: Point) -> float:
    """Returns the seconds that a step of several nodes takes longer than the same step of one node."""
    seen = observation(point)
    return seen.seconds - seen.compute


def calibrate(points: Sequence[Point]) -> Cluster:
    """Returns the study's cluster: the study does not give its network, so that its rows must."""
    return calibrated([observation(point) for point in points], Cluster(Link(0.0, float("inf"))))


def predicted(point: Point, cluster: Cluster) -> float:
    """Returns the images per second that the model predicts for a row."""
    seen = observation(point)
    return point.nodes * point.batch_size / step_seconds(seen.compute, seen.ops, cluster, point.nodes)


def error(point: Point, cluster: Cluster) -> float:
    """Returns the relative error of the prediction for a row."""
    return predicted(point, cluster) / point.images_per_second - 1


def errors_in_sample() -> dict[Point, float]:
    """Returns the error of each row with three numbers calibrated on all four."""
    cluster = calibrate(POINTS)
    return {point: error(point, cluster) for point in POINTS}


def errors_left_out() -> dict[Point, float]:
    """Returns the error of each row with the numbers calibrated on the other three."""
    return {point: error(point, calibrate([other for other in POINTS if other != point])) for point in POINTS}


def median_error(errors: dict[Point, float]) -> float:
    """Returns the median of the absolute errors."""
    return median(map(abs, errors.values()))
