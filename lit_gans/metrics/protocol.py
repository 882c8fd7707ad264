"""Protocols of measurements: everything besides the generator that the values depend on."""

from __future__ import annotations

import importlib.metadata
from dataclasses import asdict, dataclass, fields
from typing import Any

from lit_gans.metrics.evaluator import Evaluator

_PACKAGES = ("lit_gans", "torch", "torchvision", "torch_fidelity", "numpy")
# may differ between comparable values; `differences` reports them
_NOTED = ("data", "weights", "batch_norm", "seed", "versions")
RUNNING_STATISTICS = "running statistics (evaluation mode)"


@dataclass(frozen=True)
class Protocol:
    """Protocol of a measurement. Two values are comparable if all fields except those in `_NOTED` are equal.

    Args:
        data: readable description of the real images.
        data_sha256: digest of all real images, in order.
        num_real, num_fake: number of real and generated images.
        image_size: height and width of the images before the extractor.
        resize: resizing of files, and of the extractor.
        quantization: conversion of floats to bytes.
        extractor, extractor_sha256: name and digest of the weights of the extractor.
        batch_norm: mode of the generator's batch norm.
        scores: settings of each score.
        weights: `ema` or `raw` weights of the generator, or `pictures` of a folder.
        seed: seed of latents, splits and subsets.
        versions: versions of the numerical libraries.
    """

    data: str
    data_sha256: str
    num_real: int
    num_fake: int
    image_size: list[int]
    resize: str
    quantization: str
    extractor: str
    extractor_sha256: str
    batch_norm: str
    scores: dict[str, dict[str, Any]]
    weights: str
    seed: int
    versions: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Returns the protocol as plain values for JSON."""
        return asdict(self)


def stamp(evaluator: Evaluator, *, data: str, weights: str, resize: str | None = None) -> Protocol:
    """Returns the protocol of an evaluator to which the real images have been added.

    Args:
        evaluator: the evaluator.
        data, weights: see `Protocol`.
        resize: resizing of files, if any.
    """
    extractor = evaluator.extractor
    return Protocol(
        data=data,
        data_sha256=evaluator.data_sha256,
        num_real=evaluator.num_real,
        num_fake=evaluator.num_samples,
        image_size=evaluator.shape[1:],
        resize=f"{resize}; {extractor.resize}" if resize else extractor.resize,
        quantization="uint8, rounded",
        extractor=extractor.name,
        extractor_sha256=extractor.sha256,
        batch_norm="unknown" if weights == "pictures" else RUNNING_STATISTICS,
        scores={type(score).__name__: score.settings() for score in evaluator.scores.values()},
        weights=weights,
        seed=evaluator.seed,
        versions=versions(),
    )


def versions() -> dict[str, str]:
    """Returns the versions of the numerical libraries."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def differences(one: dict[str, Any], other: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Returns reasons why two protocols are not comparable, and other differences, as `field: this and that`."""
    refused: list[str] = []
    noted: list[str] = []
    for field in fields(Protocol):
        ours, theirs = one.get(field.name), other.get(field.name)
        if ours != theirs:
            (noted if field.name in _NOTED else refused).append(f"{field.name}: {ours} and {theirs}")
    return refused, noted
