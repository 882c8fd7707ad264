"""`lit-gans evaluate`: scores of a checkpoint or a folder of images, with their protocol."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lit_gans.callbacks.evaluation import GenerativeMetrics
from lit_gans.callbacks.measurement import Measurement
from lit_gans.checkpoints.format import FORMAT_KEY, read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.progress import Progress
from lit_gans.common.errors import RefusedInput
from lit_gans.config.load import load
from lit_gans.config.run_folder import refuse_folder
from lit_gans.config.trained_with import trained_with
from lit_gans.data.base import ImageData
from lit_gans.data.images import to_uint8
from lit_gans.metrics.cache import reference_path
from lit_gans.metrics.evaluator import Evaluation
from lit_gans.metrics.folder import PictureFolder
from lit_gans.metrics.protocol import fingerprint, reference_key, stamp
from lit_gans.models.pix2pix import Pix2Pix
from lit_gans.training.sampling import Weights

logger = logging.getLogger(__name__)

Real = PictureFolder | ImageData


@dataclass
class Generated:
    """Generated images.

    Args:
        source: origin of the images, for the record.
        num: number of images.
        batches: uint8 (n, c, h, w), generated or read lazily.
        shape: channels, height and width.
        weights: `ema` or `raw` weights of the generator, or `pictures` of a folder.
    """

    source: dict[str, str]
    num: int
    batches: Iterable[Tensor]
    shape: tuple[int, ...]
    weights: str


def evaluate(
    checkpoint: str | None = None,
    fake: str | None = None,
    real: str | None = None,
    data: ImageData | None = None,
    metrics: Measurement | None = None,
    image_size: int | None = None,
    weights: Weights | None = None,
    output: str | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Compares generated with real images, prints values and their protocol, and saves both as JSON.

    Scores that need more images are left out, and the record gives the reason.

    Args:
        checkpoint: path of the checkpoint to sample from, or folder of a run, which uses its best checkpoint, or the
            last if there is none.
        fake: folder of generated images, instead of a checkpoint.
        real: folder of real images.
        data: real images; null uses `real`, or the data that the checkpoint was trained on.
        metrics: extractor, scores, number of samples and their seed; null uses the metrics of the training.
        image_size: height and width that images in folders are resized to; null requires all to have the same size.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        output: JSON file; null writes `evaluation_<name>.json` next to the checkpoint or folder.
        device: device to compute on; null uses CUDA if available, otherwise the CPU.

    Raises:
        RefusedInput: not exactly one source of generated and one of real images, incompatible images, or too few.
    """
    _refuse_sources(checkpoint, fake, real, data)
    checkpoint = str(find_checkpoint(checkpoint)) if checkpoint else None
    config = read_checkpoint(checkpoint).get(FORMAT_KEY, {}).get("config", {}) if checkpoint else {}
    metrics = metrics or trained_with(config, "metrics")
    if not isinstance(metrics, GenerativeMetrics):
        raise RefusedInput("evaluate compares images by features: add metrics=NAME, for example metrics=digits.")
    images: Real = PictureFolder(real, image_size) if real else data or trained_with(config, "data")
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if checkpoint:
        generated = _samples(checkpoint, images, metrics, weights, where)
    else:
        generated = _images_of(str(fake), image_size, metrics)
    path = _place(checkpoint or str(fake), output)
    with Progress() as progress:
        record = _measured(generated, images, metrics, image_size, where, progress)
    path.write_text(json.dumps(record, indent=2) + "\n")
    _show(record, path)
    return record


def _refuse_sources(checkpoint: str | None, fake: str | None, real: str | None, data: ImageData | None) -> None:
    if (checkpoint is None) == (fake is None):
        raise RefusedInput("give the images to measure: checkpoint=PATH or fake=FOLDER, one of them.")
    if real is not None and data is not None:
        raise RefusedInput("real= and data= both name real images: leave one out.")


def _measured(
    generated: Generated,
    images: Real,
    metrics: GenerativeMetrics,
    image_size: int | None,
    device: torch.device,
    progress: Progress,
) -> dict[str, Any]:
    """Returns the record: values, scores left out, and the protocol."""
    size, name = metrics.batch_size, metrics.extractor.name
    num_real = len(images) if isinstance(images, PictureFolder) else len(images.dataset)
    real = progress.follow("reading the real images", images.real_batches(size), num_real)
    data_sha256, _, shape = fingerprint(real)
    if shape[1:] != list(generated.shape[1:]):
        raise RefusedInput(
            f"generated images are {generated.shape[1]}x{generated.shape[2]}, real ones {shape[1]}x{shape[2]}: numbers"
            " of two sizes are not comparable; for folders, image_size=N resizes both."
        )
    evaluation = Evaluation(metrics.extractor, device, metrics.seed, metrics.requested)
    evaluation.leave_out(num_real, generated.num, shape)
    kept = evaluation.kept_bytes(num_real, generated.num, shape)
    if kept:
        size_text = f"{kept / 2**20:,.1f} MiB" if kept >= 2**20 else f"{kept / 2**10:,.1f} KiB"
        logger.info("features and logits of single images are kept in memory: %s", size_text)
    cache = reference_path(reference_key(evaluation, data_sha256)) if metrics.cache else None
    if cache is not None and cache.is_file():
        logger.info("statistics of the real images from an earlier run: %s", cache)
    real = progress.follow(f"{name} features of the real images", images.real_batches(size), num_real)
    evaluation.add_real(real, cache)
    fakes = progress.follow(f"{name} features of the generated images", generated.batches, generated.num)
    values = evaluation.measure(fakes, generated.num)
    protocol = stamp(
        evaluation,
        data=repr(images),
        data_sha256=data_sha256,
        num_fake=generated.num,
        image_size=generated.shape[1:],
        weights=generated.weights,
        resize=f"pictures to {image_size}x{image_size}, antialiased, uint8" if image_size else None,
    )
    return _record(generated, evaluation, values, metrics, protocol.to_dict())


def _record(
    generated: Generated,
    evaluation: Evaluation,
    values: dict[str, float],
    metrics: GenerativeMetrics,
    protocol: dict[str, Any],
) -> dict[str, Any]:
    halves = f"fid_{metrics.extractor.name} between two halves of the real images"
    return {
        **generated.source,
        "weights": generated.weights,
        "num_samples": generated.num,
        "num_real": evaluation.num_real,
        **values,
        **({} if math.isnan(evaluation.real_halves()) else {halves: evaluation.real_halves()}),
        **({"left_out": evaluation.left_out} if evaluation.left_out else {}),
        "directions": {key: direction for key, direction in metrics.directions.items() if key in values},
        "protocol": protocol,
    }


def _show(record: dict[str, Any], path: Path) -> None:
    """Prints the record in readable form."""
    shown = {name: value for name, value in record.items() if name not in ("left_out", "directions", "protocol")}
    lines = [
        f"{name}: {value:.6g}" if isinstance(value, float) else f"{name}: {value}" for name, value in shown.items()
    ]
    lines += [f"left out: {name}: {reason}" for name, reason in record.get("left_out", {}).items()]
    protocol = [f"  {name}: {value}" for name, value in record["protocol"].items()]
    print("\n".join([*lines, "protocol", *protocol, f"saved: {path}"]))


def _samples(
    checkpoint: str, images: Real, metrics: GenerativeMetrics, weights: Weights | None, device: torch.device
) -> Generated:
    module = load(checkpoint).to(device)
    if isinstance(images, ImageData):
        for name, theirs, ours in (
            ("image_size", images.image_size, module.image_size),
            ("channels", images.channels, module.channels),
        ):
            if theirs != ours:
                raise RefusedInput(f"data.{name}={theirs}, the checkpoint's model has {ours}: add data.{name}={ours}.")
    elif isinstance(module, Pix2Pix):
        raise RefusedInput("translations are measured against the data whose images they translate: leave out real=.")
    inputs = module.sampling_inputs(metrics.num_samples, metrics.seed, images)
    return Generated(
        {"checkpoint": checkpoint},
        metrics.num_samples,
        (
            to_uint8(module.decode(microbatch, weights=weights, seed=metrics.seed))
            for microbatch in inputs.split(metrics.batch_size)
        ),
        (module.channels, module.image_size, module.image_size),
        "raw" if weights == "raw" or module.averaged_generator is None else "ema",
    )


def _images_of(folder: str, image_size: int | None, metrics: GenerativeMetrics) -> Generated:
    images = PictureFolder(folder, image_size)
    shape = tuple(next(images.real_batches(1)).shape[1:])
    return Generated({"fake": folder}, len(images), images.real_batches(metrics.batch_size), shape, "pictures")


def _place(source: str, output: str | None) -> Path:
    path = Path(output) if output else Path(source).with_name(f"evaluation_{Path(source).stem}.json")
    refuse_folder(path.parent, "output")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
