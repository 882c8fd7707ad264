"""`lit-gans evaluate`: the metrics of a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from lit_gans.callbacks.generative_metrics import GenerativeMetrics
from lit_gans.checkpoints import FORMAT_KEY, read_checkpoint
from lit_gans.data.base import ImageData
from lit_gans.errors import RefusedInput
from lit_gans.loading import load
from lit_gans.metrics.evaluation import Evaluation, to_uint8
from lit_gans.models.generative import Weights


def evaluate(
    checkpoint: str,
    data: ImageData | None = None,
    metrics: GenerativeMetrics | None = None,
    weights: Weights | None = None,
    output: str | None = None,
    device: str | None = None,
) -> dict[str, Any]:
    """Measures a checkpoint's samples against the data, prints the values and saves them as JSON.

    Args:
        checkpoint: path of the checkpoint.
        data: real images; null takes those that the checkpoint was trained on.
        metrics: extractor, number of samples and their seed; null takes those of the training.
        weights: `ema` or `raw`; null takes the averaged weights where there are some.
        output: JSON file; null is `evaluation_<name of the checkpoint>.json` beside the checkpoint.
        device: where to compute; null is CUDA where there is one, else the CPU.
    """
    from lit_gans.config import to_class_path
    from lit_gans.construct import construct

    trained_with = read_checkpoint(checkpoint).get(FORMAT_KEY, {}).get("config", {})
    if data is None:
        data = construct(to_class_path(_needed(trained_with, "data")), "data")
    if metrics is None:
        metrics = construct(to_class_path(_needed(trained_with, "metrics")), "metrics")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    module = load(checkpoint).to(device)
    for name in ("image_size", "channels"):
        if getattr(data, name) != getattr(module, name):
            raise RefusedInput(
                f"data.{name}={getattr(data, name)}, the checkpoint's model has {getattr(module, name)}:"
                f" add data.{name}={getattr(module, name)}."
            )
    evaluation = Evaluation(metrics.extractor, torch.device(device), metrics.seed)
    evaluation.add_real(data.real_batches(metrics.batch_size))
    inputs = module.sampling_inputs(metrics.num_samples, metrics.seed, data).split(metrics.batch_size)
    images = (to_uint8(module.decode(part, weights=weights, seed=metrics.seed)) for part in inputs)
    values = evaluation.measure(images, metrics.num_samples)
    used = "raw" if weights == "raw" or module.averaged_generator is None else "ema"
    record = {
        "checkpoint": str(checkpoint),
        "weights": used,
        "num_samples": metrics.num_samples,
        "num_real": len(data.dataset),
        **values,
        f"fid_{metrics.extractor.name} between two halves of the real images": evaluation.real_halves(),
    }
    path = Path(output) if output else Path(checkpoint).with_name(f"evaluation_{Path(checkpoint).stem}.json")
    path.write_text(json.dumps(record, indent=2) + "\n")
    print("\n".join(f"{name}: {value}" for name, value in record.items()) + f"\nsaved: {path}")
    return record


def _needed(trained_with: dict[str, Any], part: str) -> dict[str, Any]:
    node = trained_with.get(part)
    if node is None:
        raise RefusedInput(f"the checkpoint does not say its {part}: add {part}=NAME, for example {part}=digits.")
    return node
