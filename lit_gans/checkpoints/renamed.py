"""Class paths of the first edition and their current paths, so that old files still load.

Checkpoints, `config.yaml` and `run.yaml` of a run refer to classes by path.
"""

from __future__ import annotations

from typing import Any

_MODULES = {
    "lit_gans.callbacks.generative_metrics": "lit_gans.callbacks.evaluation",
    "lit_gans.data.digits": "lit_gans.data.sources.digits",
    "lit_gans.data.folder": "lit_gans.data.sources.folder",
    "lit_gans.data.huggingface": "lit_gans.data.sources.huggingface",
    "lit_gans.data.paired": "lit_gans.data.sources.paired",
    "lit_gans.data.points": "lit_gans.data.sources.points",
    "lit_gans.data.stacked_digits": "lit_gans.data.sources.stacked_digits",
    "lit_gans.data.streaming": "lit_gans.data.sources.streaming",
    "lit_gans.loggers.csv_metrics": "lit_gans.callbacks.csv_metrics",
    "lit_gans.metrics.digits": "lit_gans.metrics.extractors.digits",
    "lit_gans.metrics.efficientnet_lite0": "lit_gans.metrics.extractors.efficientnet_lite0",
    "lit_gans.metrics.extractor": "lit_gans.metrics.extractors.base",
    "lit_gans.metrics.inception": "lit_gans.metrics.extractors.inception",
    "lit_gans.optim": "lit_gans.training.optim",
    "lit_gans.strategies.deepspeed": "lit_gans.strategies.deepspeed.strategy",
}
_SETS = {
    "MNIST": "mnist",
    "FashionMNIST": "mnist",
    "KMNIST": "mnist",
    "EMNIST": "mnist",
    "CIFAR10": "cifar",
    "CIFAR100": "cifar",
    "SVHN": "svhn",
    "STL10": "stl10",
    "CelebA": "celeba",
    "LSUN": "lsun",
    "Imagenet": "imagenet",
}
# single classes that were renamed or moved out of their module
_CLASSES = {
    f"lit_gans.data.torchvision_sets.{name}": f"lit_gans.data.sources.{file}.{name}" for name, file in _SETS.items()
} | {
    f"{module}.{name}": f"lit_gans.training.schedules.{name}"
    for module in ("lit_gans.optim", "lit_gans.training.optim")
    for name in ("Constant", "ConstantThenLinear", "Linear")
}
_CLASSES |= {
    "lit_gans.metrics.scores.fid.FID": "lit_gans.metrics.scores.fid.FrechetInceptionDistance",
    "lit_gans.metrics.scores.kid.KID": "lit_gans.metrics.scores.kid.KernelInceptionDistance",
    "lit_gans.metrics.scores.mifid.MiFID": "lit_gans.metrics.scores.mifid.MemorizationInformedFrechetInceptionDistance",
    "lit_gans.metrics.scores.prdc.PRDC": "lit_gans.metrics.scores.prdc.PrecisionRecallDensityCoverage",
}
_PATH_KEYS = ("_target_", "class_path")
# arguments that moved: scores of GenerativeMetrics are in its `scores`
_SCORES = ("fid", "inception_score", "class_coverage", "kid", "mifid", "prdc")


def current_path(path: str) -> str:
    """Returns the current path of a class; a path that was never renamed is returned unchanged."""
    if path in _CLASSES:
        return _CLASSES[path]
    module, _, name = path.rpartition(".")
    return f"{_MODULES.get(module, module)}.{name}" if module else path


def current_paths(value: Any) -> Any:
    """Returns plain containers with every `_target_` and `class_path`, and arguments that moved, as they are now."""
    if isinstance(value, dict):
        current = {
            key: current_path(item) if key in _PATH_KEYS and isinstance(item, str) else current_paths(item)
            for key, item in value.items()
        }
        path = str(current.get("_target_", current.get("class_path")))
        _move_arguments(path.rpartition(".")[2], current.get("init_args", current))
        return current
    return [current_paths(item) for item in value] if isinstance(value, list) else value


def _move_arguments(name: str, arguments: dict[str, Any]) -> None:
    moved = {score: arguments.pop(score) for score in _SCORES if name == "GenerativeMetrics" and score in arguments}
    if moved:
        arguments["scores"] = moved
    if name == "MemorizationInformedFrechetInceptionDistance" and "threshold" in arguments:
        arguments["cosine_distance_eps"] = arguments.pop("threshold")
