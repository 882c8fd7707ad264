"""Protocols of measurements. A protocol records everything that the values depend on, except for the generator."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lit_gans.common.identity import digest_of_object, is_versioned
from lit_gans.common.precision import FLOAT32
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.scores.base import FeatureScore

_PACKAGES = ("lit_gans", "torch", "torchvision", "torch_fidelity", "numpy")
# two measurements are comparable if these fields are equal, and fields that only some measurements have, such as the
# `epsilon` of a path length
_COMPARED = (
    "data_sha256",
    "labels_sha256",
    "num_real",
    "num_fake",
    "image_size",
    "resize",
    "quantization",
    "extractor",
    "extractor_sha256",
    "extractor_probe",
    "scores",
)
_PROBE_TOLERANCE = 0.01  # maximum difference of a probe between devices, relative to its root mean square
# fields whose differences are reported, but do not make measurements incomparable
_REPORTED = ("data", "classes", "batch_norm", "precision", "weights", "truncation", "seed", "versions")
# see `is_biased`; a score that is left out has no value; the FID between two halves of the real images is a result
_IGNORED = ("trained_against", "left_out", "real_halves")
RUNNING_STATISTICS = "running statistics (evaluation mode)"


def stamp(
    evaluator: Evaluator,
    *,
    data: str,
    weights: str,
    classes: str | None = None,
    resize: str | None = None,
    truncation: float | None = None,
    trained_against: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns the protocol of an evaluator as JSON-serializable values. The real images must have been added.

    Args:
        evaluator: evaluator.
        data: readable description of the real images.
        weights: `ema` or `raw` for the weights of the generator, or `pictures` for a folder of images.
        classes: frequencies of the classes of the generated images, `as in the data` or `equal`; None without classes.
        resize: description of how image files are resized, or None.
        truncation: bound of the truncated latents, or None.
        trained_against: names of the extractors whose networks are part of the generator's loss.

    Returns:
        data, data_sha256: description of the real images, and digest of all real images in order. labels_sha256: digest
        of the classes of the real images if a score depends on them, otherwise None. num_real, num_fake: number of real
        and generated images. image_size: height and width of the images before the extractor. resize: description of
        how image files are resized, and how the extractor resizes images. quantization: description of how floats are
        converted to bytes. extractor, extractor_sha256: name and digest of the extractor, see `Extractor.sha256`.
        extractor_probe: for an extractor that wraps a module, mean and root mean square of a noise image's features.
        batch_norm: mode of the generator's batch norm. precision: precision in which images are generated and their
        features are extracted. scores: settings of each score. If the score needs logits, also the extractor's label,
        if any. If `lit_gans` does not define the score's class, also the digest of the class's code. classes, weights,
        truncation, trained_against: see the arguments. seed: seed of latents, splits and subsets. versions: versions of
        the numerical libraries.
    """
    extractor = evaluator.extractor
    return {
        "data": data,
        "data_sha256": evaluator.data_sha256,
        "labels_sha256": evaluator.labels_sha256,
        "num_real": evaluator.num_real,
        "num_fake": evaluator.num_samples,
        "image_size": evaluator.shape[1:],
        "resize": f"{resize}; {extractor.resize}" if resize else extractor.resize,
        "quantization": "uint8, rounded",
        "extractor": extractor.name,
        "extractor_sha256": extractor.sha256,
        "extractor_probe": evaluator.probe and evaluator.probe.summary,
        "batch_norm": "unknown" if weights == "pictures" else RUNNING_STATISTICS,
        "precision": FLOAT32,
        "scores": {type(score).__name__: _settings_of(score, extractor) for score in evaluator.scores.values()},
        "classes": classes,
        "weights": weights,
        "truncation": truncation,
        "trained_against": list(trained_against),
        "seed": evaluator.seed,
        "versions": versions(),
    }


def _settings_of(score: FeatureScore, extractor: Extractor) -> dict[str, Any]:
    code = {} if is_versioned(type(score)) else {"code": digest_of_object(type(score))}
    label = {"extractor_label": extractor.label} if score.needs_logits and extractor.label is not None else {}
    settings: dict[str, Any] = json.loads(json.dumps(score.settings()))  # tuples become lists, as in a protocol's file
    return settings | label | code


def versions() -> dict[str, str]:
    """Returns the versions of the numerical libraries."""
    return {name: importlib.metadata.version(name) for name in _PACKAGES}


def is_biased(protocol: dict[str, Any]) -> bool:
    """Returns whether the network of the protocol's extractor was part of the generator's loss."""
    return protocol.get("extractor") in protocol.get("trained_against", ())


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Returns two lists of differences between two protocols, each formatted as `field: value and value`.

    The first list contains the differences that make the protocols incomparable. The second list contains all other
    differences.
    """

    def differing(names: Iterable[str]) -> list[str]:
        values = {name: (one.get(name), other.get(name)) for name in names}
        return [f"{name}: {a} and {b}" for name, (a, b) in values.items() if a != b and not _is_same_probe(name, a, b)]

    others = sorted({*one, *other}.difference(_COMPARED, _REPORTED, _IGNORED))
    return differing([*_COMPARED, *others]), differing(_REPORTED)


def conflicts_of(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Returns why the values that two runs have both measured cannot be compared, or an empty string if they can.

    An empty protocol, of a run that has measured nothing yet, can be compared with every other one. Scores that only
    one of them has do not matter.
    """
    return "; ".join(differences(_shared(one, other), _shared(other, one))[0]) if one and other else ""


def _shared(protocol: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a protocol without the scores that another protocol does not have."""
    scores = {name: value for name, value in protocol.get("scores", {}).items() if name in other.get("scores", {})}
    labels = protocol.get("labels_sha256") if other.get("labels_sha256") else None  # only some scores need labels
    return {**protocol, "scores": scores, "labels_sha256": labels}


def _is_same_probe(name: str, one: Any, other: Any) -> bool:
    """Returns whether two values are probes of the same extractor, possibly on different devices.

    A missing probe counts as equal, because protocols of older versions have no probe.
    """
    if name != "extractor_probe":
        return False
    return not (one and other) or bool(np.allclose(one, other, rtol=0, atol=_PROBE_TOLERANCE * max(one[1], other[1])))
