"""`lit-gans evaluate checkpoint=PATH | fake=DIR real=DIR`: measures FID, Inception Score, KID and other scores.

Examples:
    lit-gans evaluate checkpoint=outputs/dcgan_digits/version_0 metrics=digits metrics.num_samples=1000
    lit-gans evaluate fake=FOLDER real=FOLDER metrics=inception image_size=64
    lit-gans evaluate checkpoint=RUN metrics=dinov2 +metrics@more_metrics.clip=clip
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lit_gans.callbacks.evaluation import GenerativeMetrics
from lit_gans.checkpoints.exported import is_exported
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.checkpoints.remote import is_address
from lit_gans.cli.checkpoint import refuse_other_images, refuse_truncation, turn
from lit_gans.common.atomic import replacing, set_aside
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput
from lit_gans.common.paths import short_name
from lit_gans.common.progress import follow
from lit_gans.common.size import Size, as_size, size_text
from lit_gans.config.load import module_from, trained_with
from lit_gans.config.run_folder import output_file, results_folder
from lit_gans.data.base import ImageData
from lit_gans.data.class_names import class_names_of, other_class
from lit_gans.data.contracts import Labeled
from lit_gans.data.images import to_uint8
from lit_gans.data.packed.unpaired import UnpairedData
from lit_gans.latents.truncation import truncated
from lit_gans.metrics.evaluator import (
    Evaluator,
    choose_together,
    extract_together,
    measure_together,
    with_labels,
)
from lit_gans.metrics.folder import PictureFolder
from lit_gans.metrics.protocol import is_biased, stamp
from lit_gans.training.module import AdversarialModule
from lit_gans.training.sampling import ClassFrequencies, Weights
from lit_gans.training.translator import Direction, Translator

logger = logging.getLogger(__name__)

Real = PictureFolder | ImageData


@dataclass
class Generated:
    """Generated images and their origin.

    Args:
        source: entry of the record that describes the origin of the images.
        num: number of images.
        batches: uint8 batches (n, c, h, w), which are generated or read lazily.
        shape: number of channels, height and width.
        weights: weights of the generator, `ema` or `raw`; `pictures` for a folder of images.
        num_classes: number of classes of the generator; 0 without classes.
        labels, classes: class of each image, and frequencies of the classes; None without classes.
        truncation: bound for the absolute values of latents; None without truncation.
        trained_against: names of the feature extractors that the generator's loss uses.
    """

    source: dict[str, str]
    num: int
    batches: Iterable[Tensor]
    shape: tuple[int, ...]
    weights: str
    num_classes: int = 0
    labels: Tensor | None = None
    classes: ClassFrequencies | None = None
    truncation: float | None = None
    trained_against: tuple[str, ...] = ()


def evaluate(
    checkpoint: str | None = None,
    fake: str | None = None,
    real: str | None = None,
    data: ImageData | None = None,
    metrics: GenerativeMetrics | None = None,
    more_metrics: dict[str, GenerativeMetrics] | None = None,
    image_size: Size | None = None,
    value_range: tuple[float, float] | None = None,
    max_pixels: int | None = 178_956_970,
    direction: Direction = "a_to_b",
    truncation: float | None = None,
    weights: Weights | None = None,
    output: str | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Measures scores of generated images, prints the values and their protocol, and saves both as JSON.

    A score is left out if it needs more images than there are. The record states the reason. Returns the record of
    `metrics`.

    Args:
        checkpoint: path of a checkpoint or of a run folder to sample from. For a run folder, uses the best
            checkpoint, or else the last.
        fake: folder of generated images with its subfolders, a zip or tar archive, or a folder of shards, used instead
            of a checkpoint.
        real: real images, like `fake`.
        data: source of real images; null uses `real`, or the data that the checkpoint was trained on.
        metrics: feature extractor, scores, number of samples and seed; null uses the metrics of the training run.
        more_metrics: further metrics of the same images by any name, with the number of samples and the seed of
            `metrics`. Images are generated and read once for all feature extractors. The name is added to the name of
            the JSON file.
        image_size: height and width to which images in folders are resized; null requires images of equal size.
        value_range: values of files in folders that are mapped to black and white; null uses 0 and 255, or 0 and 65535
            for 16-bit files.
        max_pixels: maximum number of pixels of a file in a folder; null sets no limit.
        direction: `b_to_a` measures translations of the second domain to the first domain, for CycleGAN.
        truncation: bound for the absolute values of latents, see `lit-gans sample`; null sets no bound.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.
        output: JSON file; null writes `evaluation_<name>.json` to the folder of the checkpoint, or next to the folder
            of generated images.
        device: device to compute on; null uses CUDA if available, otherwise the CPU.

    Raises:
        RefusedInput: If there is not exactly one source of generated images and one source of real images, if the
            images are incompatible or too few, or if `more_metrics` have another number of samples or seed.
    """
    if (checkpoint is None) == (fake is None):
        raise RefusedInput("set the images to measure: either checkpoint=PATH or fake=FOLDER.")
    if fake is not None and real is None and data is None:
        raise RefusedInput("the real images are missing: set real=FOLDER, or data=NAME.")
    if real is not None and data is not None:
        raise RefusedInput("real= and data= both set the real images: leave out one of them.")
    if fake is not None and (truncation is not None or direction == "b_to_a"):
        raise RefusedInput("truncation= and direction= apply to a checkpoint only: leave them out with fake=.")
    if fake is None and real is None and (image_size is not None or value_range is not None):
        raise RefusedInput(
            "image_size= and value_range= apply to images in folders only: leave them out, or set real=FOLDER."
        )
    where = chosen_device(device)
    path = find_checkpoint(checkpoint) if checkpoint else None
    target = output_file(output or _default_output(path, checkpoint or str(fake), direction))
    more_metrics = more_metrics or {}
    targets = [target, *(output_file(target.with_stem(f"{target.stem}_{name}")) for name in more_metrics)]
    content = read_checkpoint(path) if path else {}
    metrics = metrics or trained_with(content, "metrics", GenerativeMetrics)
    for name, others in more_metrics.items():
        for key in ("num_samples", "seed"):
            expected, found = (getattr(one, key) for one in (metrics, others))
            if found != expected:
                raise RefusedInput(
                    f"more_metrics.{name}.{key}={found} differs from metrics.{key}={expected}: images are generated"
                    " once, so set both to the same value."
                )
    bounds = None if value_range is None else (float(value_range[0]), float(value_range[1]))
    reading = image_size, bounds, max_pixels
    images: Real = PictureFolder(real, *reading) if real else data or trained_with(content, "data")
    if path:
        module = module_from(content, path).to(where)
        turn(module, direction)
        generated = _samples(module, str(path), _in_direction(images, direction), metrics, weights, truncation)
    else:
        generated = _images_of(PictureFolder(str(fake), *reading), metrics)
    settings = generated.num, metrics.batch_size, metrics.seed, where, generated.num_classes
    measured = [metrics, *more_metrics.values()]
    evaluators = [Evaluator(each.extractor, each.scores, *settings) for each in measured]
    records = _measure(generated, images, evaluators, image_size, metrics.cache)
    for path_of_record, record in zip(targets, records, strict=True):
        _save(record, path_of_record)
        if is_biased(record["protocol"]):
            logger.warning(
                "the feature extractor %s was part of the generator's loss, so lit-gans compare does not accept these"
                " values: use metrics=efficientnet_lite2 or inception, which are independent of the training.",
                record["protocol"]["extractor"],
            )
    return records[0]


def _measure(
    generated: Generated, images: Real, evaluators: list[Evaluator], image_size: Size | None, store: bool
) -> list[dict[str, Any]]:
    """Returns the record of each evaluator: values, left-out scores, and the protocol."""
    shape = next(images.real_batches(1)).shape[1:]
    if shape[1:] != generated.shape[1:]:
        fake_size, real_size = (size_text(as_size(sizes[1:])) for sizes in (generated.shape, shape))
        raise RefusedInput(
            f"generated images are {fake_size}, real images are {real_size}: both must have the same size; for folders,"
            " image_size=N or [HEIGHT,WIDTH] resizes both."
        )
    labels = None
    if isinstance(images, Labeled) and generated.num_classes and images.num_classes:
        labels = images.real_labels()
    if isinstance(images, PictureFolder):
        batches = images.real_batches(evaluators[0].batch_size)
        choose_together(evaluators, follow("reading the real images", batches, len(images)), labels)
    else:
        choose_together(evaluators, images, labels)
    names = " and ".join(evaluator.extractor.name for evaluator in evaluators)
    stage, num_real = f"{names} features of the real images", evaluators[0].num_real
    extract_together(evaluators, images, store, lambda batches: follow(stage, batches, num_real))
    fake = follow(f"{names} features of the generated images", generated.batches, generated.num)
    values = measure_together(evaluators, fake, generated.labels)
    resize = f"pictures to {size_text(as_size(image_size))}, antialiased, uint8" if image_size else None
    return [_record(*pair, generated, repr(images), resize) for pair in zip(evaluators, values, strict=True)]


def _record(
    evaluator: Evaluator, values: dict[str, float], generated: Generated, data: str, resize: str | None
) -> dict[str, Any]:
    halves = {f"fid_{evaluator.extractor.name} between two halves of the real images": evaluator.real_halves}
    return {
        **generated.source,
        "weights": generated.weights,
        "num_samples": generated.num,
        "num_real": evaluator.num_real,
        **values,
        **({} if math.isnan(evaluator.real_halves) else halves),
        **({"left_out": evaluator.left_out} if evaluator.left_out else {}),
        "directions": {key: direction for key, direction in evaluator.directions.items() if key in values},
        "protocol": stamp(
            evaluator,
            data=data,
            classes=generated.classes,
            weights=generated.weights,
            resize=resize,
            truncation=generated.truncation,
            trained_against=generated.trained_against,
        ),
    }


def _save(record: dict[str, Any], path: Path) -> None:
    """Writes the record as JSON, and prints it in readable form. A record with another protocol is kept."""
    text = json.dumps(record, indent=2) + "\n"
    if path.is_file() and _protocol_in(path.read_bytes()) != _protocol_in(text):
        set_aside(path)
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
    shown = {name: value for name, value in record.items() if name not in ("left_out", "directions", "protocol")}
    lines = [f"{key}: {value:.6g}" if isinstance(value, float) else f"{key}: {value}" for key, value in shown.items()]
    lines += [f"left out: {name}: {reason}" for name, reason in record.get("left_out", {}).items()]
    lines += ["protocol", *(f"  {name}: {value}" for name, value in record["protocol"].items())]
    print("\n".join([*lines, f"saved: {path}"]))


def _protocol_in(record: str | bytes) -> Any:
    """Returns the protocol in a record, or None if the text is no record."""
    with suppress(ValueError, KeyError, TypeError):
        return json.loads(record)["protocol"]
    return None


def _samples(
    module: AdversarialModule,
    checkpoint: str,
    images: Real,
    metrics: GenerativeMetrics,
    weights: Weights | None,
    truncation: float | None,
) -> Generated:
    if isinstance(images, ImageData):
        refuse_other_images(module, images)
        other = other_class(module.class_names, class_names_of(images))
        if other is not None:
            raise RefusedInput(
                f"the checkpoint's model has other classes than the data: {other}; use data with the model's classes,"
                " or real=FOLDER, which ignores classes."
            )
    elif isinstance(module, Translator):
        raise RefusedInput("translations are compared with the data of their input images: leave out real=.")
    refuse_truncation(module, truncation)
    module.sampling_generator(weights)  # raises an error before any image is read
    num = module.num_different(metrics.num_samples, images)
    inputs = module.sampling_inputs(num, metrics.seed, images)
    inputs = inputs if truncation is None else truncated(inputs, truncation)
    labels = module.labels_like(images, num)
    return Generated(
        {"checkpoint": checkpoint},
        num,
        (
            to_uint8(module.decode(microbatch, labels=classes, weights=weights, seed=metrics.seed))
            for microbatch, classes in with_labels(inputs.split(metrics.batch_size), labels)
        ),
        (module.channels, *inputs.shape[2:]) if isinstance(module, Translator) else module.image_shape,
        module.used_weights(weights),
        module.num_classes,
        labels,
        module.class_frequencies(images),
        truncation,
        module.trains_against,
    )


def _in_direction(images: Real, direction: Direction) -> Real:
    """Returns the data, with exchanged domains for the direction `b_to_a`.

    Raises:
        RefusedInput: If the direction is `b_to_a` and the data does not consist of two unpaired domains.
    """
    if direction == "b_to_a":
        if not isinstance(images, UnpairedData):
            raise RefusedInput(f"direction={direction} needs images of both domains: data=unpaired.")
        images.exchange_domains()
    return images


def _images_of(images: PictureFolder, metrics: GenerativeMetrics) -> Generated:
    shape = tuple(next(images.real_batches(1)).shape[1:])
    return Generated(
        {"fake": str(images.folder)}, len(images), images.real_batches(metrics.batch_size), shape, "pictures"
    )


def _default_output(checkpoint: Path | None, source: str, direction: Direction) -> Path:
    measured = checkpoint or Path(source)
    has_folder = checkpoint and (is_exported(measured) or is_address(source))
    folder = results_folder(source, measured) if has_folder else measured.parent
    name = measured.stem if measured.suffix in (".ckpt", ".json") else measured.name  # a folder can have a dot
    suffix = "_b_to_a" if direction == "b_to_a" else ""
    return folder / f"evaluation_{short_name(name)}{suffix}.json"
