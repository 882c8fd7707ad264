"""`lit-gans evaluate`: scores of a checkpoint, or of a folder of pictures, with their protocol."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor

from lit_gans.callbacks.evaluation import GenerativeMetrics
from lit_gans.callbacks.measurement import Measurement
from lit_gans.checkpoints.format import FORMAT_KEY, read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.checkpoints.renamed import current_paths
from lit_gans.common.errors import RefusedInput
from lit_gans.config.load import load
from lit_gans.data.base import ImageData
from lit_gans.metrics.cache import reference_path
from lit_gans.metrics.evaluator import Evaluation, to_uint8
from lit_gans.metrics.folder import PictureFolder
from lit_gans.metrics.protocol import fingerprint, reference_key, stamp
from lit_gans.models.pix2pix import Pix2Pix
from lit_gans.training.generative import Weights


@dataclass
class Generated:
    """What is measured: where it comes from, how many images, their batches and shape, and which weights made them."""

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
    """Measures generated against real images, prints values and protocol and saves them as JSON.

    Args:
        checkpoint: path of the checkpoint whose samples are measured, or folder of a run, of which the best or else the
            last one is taken.
        fake: a folder of pictures that are measured instead.
        real: a folder of real pictures.
        data: real images; null takes `real`, or those that the checkpoint was trained on.
        metrics: extractor, scores, number of samples and their seed; null takes those of the training.
        image_size: what the pictures of folders are resized to; null wants them all of one size.
        weights: `ema` or `raw`; null takes the averaged weights where there are some.
        output: JSON file; null is `evaluation_<name>.json` beside the checkpoint or the folder.
        device: where to compute; null is CUDA where there is one, else the CPU.

    Raises:
        RefusedInput: not one kind of generated and one of real images, images that do not fit, or too few of them.
    """
    if (checkpoint is None) == (fake is None):
        raise RefusedInput("give what is to be measured: checkpoint=PATH or fake=FOLDER, one of them.")
    if real is not None and data is not None:
        raise RefusedInput("real= and data= both name real images: leave one out.")
    checkpoint = str(find_checkpoint(checkpoint)) if checkpoint else None
    trained_with = read_checkpoint(checkpoint).get(FORMAT_KEY, {}).get("config", {}) if checkpoint else {}
    metrics = metrics or _constructed(trained_with, "metrics")
    if not isinstance(metrics, GenerativeMetrics):
        raise RefusedInput("evaluate compares images by features: add metrics=NAME, for example metrics=digits.")
    if real is not None:
        images: Any = PictureFolder(real, image_size)
    else:
        images = data or _constructed(trained_with, "data")
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        generated = (
            _samples(checkpoint, images, metrics, weights, where)
            if checkpoint
            else _pictures(fake, image_size, metrics)
        )
        return _measured(generated, images, metrics, image_size, where, bar, _place(checkpoint or fake, output))


def _measured(
    generated: Generated,
    images: Any,
    metrics: GenerativeMetrics,
    image_size: int | None,
    device: torch.device,
    bar: Progress,
    path: Path,
) -> dict[str, Any]:
    evaluation = Evaluation(metrics.extractor, device, metrics.seed, metrics.scores)
    total = len(images) if isinstance(images, PictureFolder) else len(images.dataset)
    for score in evaluation.scores:
        score.refuse(total, generated.num)
    size = metrics.batch_size
    data_sha256, _, shape = fingerprint(_told(bar, "reading the real images", images.real_batches(size), total))
    if shape[1:] != list(generated.shape[1:]):
        raise RefusedInput(
            f"generated images are {generated.shape[1]}x{generated.shape[2]}, real ones {shape[1]}x{shape[2]}: numbers"
            " of two sizes do not compare; of folders, image_size=N resizes both."
        )
    cache = reference_path(reference_key(evaluation, data_sha256)) if metrics.cache else None
    real = _told(bar, f"{metrics.extractor.name} features of the real images", images.real_batches(size), total)
    evaluation.add_real(real, cache)
    kept = evaluation.kept_bytes(generated.num)
    if kept:
        bar.console.print(f"features and logits of single images are kept, {kept / 2**20:.1f} MiB")
    fakes = _told(bar, f"{metrics.extractor.name} features of the generated images", generated.batches, generated.num)
    values = evaluation.measure(fakes, generated.num)
    halves = f"fid_{metrics.extractor.name} between two halves of the real images"
    record = {
        **generated.source,
        "weights": generated.weights,
        "num_samples": generated.num,
        "num_real": evaluation.num_real,
        **values,
        **({} if math.isnan(evaluation.real_halves()) else {halves: evaluation.real_halves()}),
        "directions": {key: direction for key, direction in metrics.directions.items() if key in values},
        "protocol": stamp(
            evaluation,
            data=repr(images),
            data_sha256=data_sha256,
            num_fake=generated.num,
            image_size=generated.shape[1:],
            weights=generated.weights,
            resize=f"pictures to {image_size}x{image_size}, antialiased, uint8" if image_size else None,
        ).to_dict(),
    }
    path.write_text(json.dumps(record, indent=2) + "\n")
    shown = [f"{name}: {value}" for name, value in record.items() if name not in ("directions", "protocol")]
    stamped = [f"  {name}: {value}" for name, value in record["protocol"].items()]
    print("\n".join([*shown, "protocol", *stamped, f"saved: {path}"]))
    return record


def _samples(
    checkpoint: str, images: Any, metrics: GenerativeMetrics, weights: Weights | None, device: torch.device
) -> Generated:
    module = load(checkpoint).to(device)
    if isinstance(images, ImageData):
        for name in ("image_size", "channels"):
            if getattr(images, name) != getattr(module, name):
                raise RefusedInput(
                    f"data.{name}={getattr(images, name)}, the checkpoint's model has {getattr(module, name)}:"
                    f" add data.{name}={getattr(module, name)}."
                )
    elif isinstance(module, Pix2Pix):
        raise RefusedInput("translations are measured against the data whose pictures they translate: leave out real=.")
    inputs = module.sampling_inputs(metrics.num_samples, metrics.seed, images)
    parts = inputs.split(metrics.batch_size)
    return Generated(
        {"checkpoint": str(checkpoint)},
        metrics.num_samples,
        (to_uint8(module.decode(part, weights=weights, seed=metrics.seed)) for part in parts),
        (module.channels, module.image_size, module.image_size),
        "raw" if weights == "raw" or module.averaged_generator is None else "ema",
    )


def _pictures(folder: str, image_size: int | None, metrics: GenerativeMetrics) -> Generated:
    pictures = PictureFolder(folder, image_size)
    shape = next(pictures.real_batches(1)).shape[1:]
    return Generated({"fake": str(folder)}, len(pictures), pictures.real_batches(metrics.batch_size), shape, "pictures")


def _told(bar: Progress, what: str, batches: Iterable[Tensor], total: int) -> Iterator[Tensor]:
    """Yields the batches and shows how far they are."""
    task = bar.add_task(what, total=total)
    for batch in batches:
        yield batch
        bar.advance(task, len(batch))
    bar.remove_task(task)


def _place(source: str, output: str | None) -> Path:
    path = Path(output) if output else Path(source).with_name(f"evaluation_{Path(source).stem}.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _constructed(trained_with: dict[str, Any], part: str) -> Any:
    from lit_gans.config.build import to_class_path
    from lit_gans.config.signatures import construct

    node = trained_with.get(part)
    if node is None:
        whose = "the checkpoint does not say its" if trained_with else "nothing says the"
        raise RefusedInput(f"{whose} {part}: add {part}=NAME, for example {part}=digits.")
    return construct(to_class_path(current_paths(node)), part)
