"""A calibrated cost model of distributed training: seconds per step from computation, traffic and network.

Shapes of the model, for a step on n devices with batch b each:

    seconds(n, b) = compute(b) (1 + spread E_n) + traffic(n) - hidden
    hidden        = min(overlap traffic(n), backward compute(b))

`compute(b)` is measured on one device. All devices wait for the slowest: E_n is the expected maximum of n standard
normal numbers (Blom 1958), `spread` the relative standard deviation of a device's step. Each collective operation costs
latency and bytes as in Thakur et al. (2005): a ring all-reduce of M bytes is 2 (n - 1) messages of M / n bytes, an
all-gather or reduce-scatter half of that. `hidden` is what communication overlaps with the backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from statistics import NormalDist
from typing import Literal

import torch

Sharding = Literal["ddp", "zero_1", "zero_2", "zero_3", "fsdp"]

BACKWARD_SHARE = 0.5  # of a step's computation, that gradients of the same step can be reduced during
SHARDED: tuple[Sharding, ...] = ("zero_3", "fsdp")


@dataclass(frozen=True)
class Link:
    """One level of the network.

    Args:
        latency: seconds per message.
        bandwidth: bytes per second that one device, or one node, sends.
    """

    latency: float
    bandwidth: float


@dataclass(frozen=True)
class Traffic:
    """Collective operations of one step.

    Args:
        all_reduces: bytes of each all-reduce.
        gathers: bytes of each all-gather and reduce-scatter.
    """

    all_reduces: tuple[float, ...] = ()
    gathers: tuple[float, ...] = ()


@dataclass(frozen=True)
class Cluster:
    """Devices and the network between them.

    Args:
        between: link between nodes, or between devices where each node has one.
        inside: link between the devices of a node.
        devices_per_node: number of devices of a node.
        overlap: share of the communication that can happen during the backward pass, in [0, 1].
        spread: relative standard deviation of a device's step.
    """

    between: Link
    inside: Link | None = None
    devices_per_node: int = 1
    overlap: float = 0.0
    spread: float = 0.0


def traffic(
    sharding: Sharding, generator: float, discriminator: float, n_critic: int = 1, reuses_fake: bool = True
) -> Traffic:
    """Returns the collective operations of one generator iteration.

    Data parallel training reduces the gradient of each network in its own backward pass. ZeRO 1 and 2 reduce-scatter
    gradients and all-gather stepped parameters, the same bytes. ZeRO 3 and FSDP unshard a network for each of its
    forward and backward passes, the discriminator also in the generator's turn, and reduce-scatter its gradients.

    Args:
        sharding: what is sharded over the devices.
        generator, discriminator: bytes of the gradient of each network; of several discriminators together.
        n_critic: number of discriminator steps per iteration.
        reuses_fake: whether the generator's step reuses the images of the last discriminator step.
    """
    if sharding == "ddp":
        return Traffic(all_reduces=(discriminator,) * n_critic + (generator,))
    if sharding not in SHARDED:
        return Traffic(gathers=((discriminator,) * n_critic + (generator,)) * 2)
    forwards = n_critic - 1 if reuses_fake else n_critic  # of the generator, for the discriminator's steps
    return Traffic(gathers=(discriminator,) * (3 * n_critic + 2) + (generator,) * (forwards + 3))


def communication(ops: Traffic, cluster: Cluster, devices: int, hierarchical: bool = False) -> float:
    """Returns the seconds of a step's collective operations if nothing overlaps.

    Args:
        ops: collective operations.
        cluster: devices and network.
        devices: number of devices.
        hierarchical: whether to reduce inside each node first, and then between nodes.
    """
    nodes = -(-devices // cluster.devices_per_node)
    inside = cluster.inside
    if nodes == 1 and inside is not None:
        return _rings(ops, inside, devices)
    if hierarchical and inside is not None and cluster.devices_per_node > 1:
        return _rings(ops, inside, cluster.devices_per_node) + _rings(ops, cluster.between, nodes)
    return _rings(ops, cluster.between, devices)  # a ring is as slow as its slowest link


def _rings(ops: Traffic, link: Link, n: int) -> float:
    rounds = 2 * (n - 1) * len(ops.all_reduces) + (n - 1) * len(ops.gathers)
    moved = (2 * sum(ops.all_reduces) + sum(ops.gathers)) * (n - 1) / n
    return rounds * link.latency + moved / link.bandwidth


def expected_maximum(n: int) -> float:
    """Returns the expected maximum of n standard normal numbers (Blom's approximation)."""
    return 0.0 if n == 1 else NormalDist().inv_cdf((n - 0.375) / (n + 0.25))


def compute_seconds(measured: Mapping[int, float], batch_size: float) -> float:
    """Returns the seconds of a step at any batch size, between and beyond those measured on straight lines.

    Args:
        measured: seconds of a step on one device by batch size.
        batch_size: batch size per device, which may be a fraction of an image.
    """
    points = sorted(measured.items())
    if len(points) == 1:
        return points[0][1] * batch_size / points[0][0]
    low, high = next((pair for pair in pairwise(points) if batch_size <= pair[1][0]), tuple(points[-2:]))
    slope = (high[1] - low[1]) / (high[0] - low[0])
    return max(low[1] + slope * (batch_size - low[0]), min(measured.values()) / 2)


def step_seconds(compute: float, ops: Traffic, cluster: Cluster, devices: int, hierarchical: bool = False) -> float:
    """Returns the seconds of a step; see the top of this file."""
    exchanged = communication(ops, cluster, devices, hierarchical) if devices > 1 else 0.0
    hidden = min(cluster.overlap * exchanged, BACKWARD_SHARE * compute)
    return compute * (1 + cluster.spread * expected_maximum(devices)) + exchanged - hidden


@dataclass(frozen=True)
class Observation:
    """A measured step on several devices.

    Args:
        compute: seconds of the same step on one device.
        ops: its collective operations.
        devices: number of devices.
        seconds: measured seconds.
    """

    compute: float
    ops: Traffic
    devices: int
    seconds: float


def calibrated(observations: Sequence[Observation], cluster: Cluster) -> Cluster:
    """Returns a cluster whose latency, bandwidth and spread best explain the measured steps, without overlap.

    The seconds are linear in the three; the relative squared error is smallest where none of them is negative.

    Args:
        observations: measured steps on more than one device.
        cluster: cluster whose other properties are kept.
    """
    rows, ones = [], torch.ones(len(observations), dtype=torch.float64)
    for seen in observations:
        hops = communication(seen.ops, replace(cluster, between=Link(1.0, float("inf"))), seen.devices)
        moved = communication(seen.ops, replace(cluster, between=Link(0.0, 1.0)), seen.devices)
        terms = (hops, moved * 1e-9, seen.compute * expected_maximum(seen.devices), seen.compute)
        rows.append([term / seen.seconds for term in terms])
    table = torch.tensor(rows, dtype=torch.float64)
    matrix, wanted = table[:, :3], ones - table[:, 3]
    best, least = torch.zeros(3, dtype=torch.float64), float(wanted.square().sum())
    for used in (columns for size in (1, 2, 3) for columns in combinations(range(3), size)):
        found = torch.zeros(3, dtype=torch.float64)
        found[list(used)] = torch.linalg.lstsq(matrix[:, list(used)], wanted[:, None], driver="gelsd").solution[:, 0]
        error = float((matrix @ found - wanted).square().sum())
        if (found >= 0).all() and error < least - 1e-15:
            best, least = found, error
    latency, per_gigabyte, spread = best.tolist()
    bandwidth = 1e9 / per_gigabyte if per_gigabyte else float("inf")
    return replace(cluster, between=Link(latency, bandwidth), spread=spread, overlap=0.0)


def link_of(all_reduces: Mapping[int, float], devices: int) -> Link:
    """Returns latency and bandwidth from timed all-reduces: those of the smallest and the largest message.

    Args:
        all_reduces: seconds by bytes.
        devices: number of devices that reduced.
    """
    (small, quick), (large, slow) = min(all_reduces.items()), max(all_reduces.items())
    per_byte = max(slow - quick, 1e-12) / (large - small)
    latency = max(quick - per_byte * small, 0.0) / (2 * (devices - 1))
    return Link(latency, 2 * (devices - 1) / devices / per_byte)
