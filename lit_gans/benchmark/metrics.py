"""`lit-gans bench metrics`: images a second of an evaluation, beside torch-fidelity on the same work."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import UInt8
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.data import Dataset

from lit_gans.benchmark.measure import environment, now, spread
from lit_gans.common.errors import RefusedInput
from lit_gans.metrics.evaluator import Evaluation
from lit_gans.metrics.extractors.inception import InceptionExtractor, usual_place
from lit_gans.metrics.scores.fid import FID
from lit_gans.metrics.scores.inception_score import InceptionScore
from lit_gans.metrics.scores.kid import KID

_NUM = {"full": 500, "smoke": 20}
_BATCHES = {"full": 8, "smoke": 2}
_SUBSETS = 10


class Images(Dataset):
    """Bytes as torch-fidelity takes them, one image at a time."""

    def __init__(self, images: UInt8[Tensor, "n 3 h w"]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> UInt8[Tensor, "3 h w"]:
        return self.images[index]


def metrics(
    preset: Literal["full", "smoke"] = "full",
    output: str | None = None,
    num: int | None = None,
    batch_size: int = 50,
    image_size: int = 32,
    device: Literal["cpu", "cuda"] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Times Inception's features, batch by batch in turns, and then a whole evaluation, in both libraries.

    Both have the same weights: the usual file where it lies in the cache, else random ones, which cost the same. A
    whole evaluation is the features of real and generated images and FID, Inception Score and KID of them.

    Args:
        preset: `smoke` ends in seconds and leaves the FID out, whose eigenvalues take torch-fidelity half a minute.
        output: JSON file to write as well.
        num: real images, and as many generated ones; null is the preset's number.
        batch_size: images in a pass of the network.
        image_size: of the random images before the network.
        device: null is CUDA where there is one, else the CPU.
        seed: of images and weights.

    Returns:
        What the JSON holds: seconds, images a second, and our speed over torch-fidelity's.
    """
    num = _NUM[preset] if num is None else num
    if num < 2 * batch_size and preset == "full":
        raise RefusedInput(f"num={num} must be at least two batches of batch_size={batch_size}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise RefusedInput("device=cuda: torch finds no CUDA device here; use device=cpu.")
    where = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    batch_size = min(batch_size, num // 2)
    real, fake = _blocks(num, image_size, seed), _blocks(num, image_size, seed + 1)
    with tempfile.TemporaryDirectory() as folder:
        path = usual_place() if usual_place().is_file() else random_weights(Path(folder) / "random.pth", seed)
        result = {
            "benchmark": "metrics",
            "preset": preset,
            "num": num,
            "batch_size": batch_size,
            "image_size": image_size,
            "weights": path.name,
            **environment(where),
            "features": _features(path, fake, batch_size, _BATCHES[preset], where),
            "evaluation": _whole(path, real, fake, batch_size, preset == "full", where),
        }
    _print_table(result)
    print(json.dumps(result))
    if output is not None:
        Path(output).write_text(json.dumps(result, indent=2) + "\n")
    return result


def random_weights(path: Path, seed: int) -> Path:
    """Writes an untrained Inception in the format of the real file and returns its path."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    class Untrained(FeatureExtractorInceptionV3):
        def load_state_dict(self, state_dict: dict[str, Tensor]) -> None:
            pass

    nothing = io.BytesIO()
    torch.save({}, nothing)
    nothing.seek(0)
    network = Untrained("inception", ["2048"], nothing)
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d):  # torch's default shrinks the features towards zero, layer by layer
            torch.nn.init.kaiming_normal_(module.weight, generator=generator)
        if isinstance(module, torch.nn.BatchNorm2d):  # so that it does something
            module.weight.uniform_(0.8, 1.2, generator=generator)
            module.running_mean.normal_(0, 0.05, generator=generator)
    torch.save(network.state_dict(), path)
    return path


def _blocks(num: int, image_size: int, seed: int) -> UInt8[Tensor, "n 3 s s"]:
    small = torch.rand(num, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(small, (image_size, image_size)).mul(255).to(torch.uint8)


@torch.no_grad()
def _features(path: Path, images: Tensor, batch_size: int, num_batches: int, device: torch.device) -> dict[str, Any]:
    """Times the two networks on the same batches in turns; the first of each is not counted."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    networks: dict[str, Callable[[Tensor], Any]] = {
        "torch_fidelity": FeatureExtractorInceptionV3("theirs", ["2048", "logits_unbiased"], str(path)).to(device),
        "lit_gans": InceptionExtractor(str(path), sha256=None).to(device),
    }
    seconds: dict[str, list[float]] = {name: [] for name in networks}
    largest = 0.0
    for index in range(num_batches + 1):
        start = index * batch_size % (len(images) - batch_size + 1)
        batch, found = images[start : start + batch_size].to(device), {}
        for name, network in networks.items():
            begun = now(device)
            found[name] = network(batch)[0]
            seconds[name].append(now(device) - begun)
        difference = (found["lit_gans"] - found["torch_fidelity"]).abs().max() / found["torch_fidelity"].abs().max()
        largest = max(largest, difference.item())
    counted = {name: times[1:] for name, times in seconds.items()}
    ratios = [theirs / ours for theirs, ours in zip(counted["torch_fidelity"], counted["lit_gans"], strict=True)]
    return {
        "images_per_second": {name: batch_size / spread(times)["median"] for name, times in counted.items()},
        "speedup": spread(ratios),
        "largest_relative_difference": largest,
    }


def _whole(path: Path, real: Tensor, fake: Tensor, batch_size: int, fid: bool, device: torch.device) -> dict[str, Any]:
    """Times an evaluation by each, networks loaded before ours and, which cannot be avoided, within theirs."""
    import torch_fidelity

    subset = len(real) // 2
    scores = [InceptionScore(splits=2), KID(subsets=_SUBSETS, subset_size=subset), *([FID()] if fid else [])]
    begun = now(device)
    evaluation = Evaluation(InceptionExtractor(str(path), sha256=None), device, 0, scores)
    evaluation.add_real(real.split(batch_size))
    values = evaluation.measure(fake.split(batch_size), len(fake))
    ours = now(device) - begun
    begun = now(device)
    theirs_values = torch_fidelity.calculate_metrics(
        input1=Images(fake),
        input2=Images(real),
        isc=True,
        kid=True,
        fid=fid,
        isc_splits=2,
        kid_subsets=_SUBSETS,
        kid_subset_size=subset,
        feature_extractor_weights_path=str(path),
        batch_size=batch_size,
        cuda=device.type == "cuda",
        cache=False,
        verbose=False,
        save_cpu_ram=True,
    )
    theirs = now(device) - begun
    num = len(real) + len(fake)
    return {
        "seconds": {"torch_fidelity": theirs, "lit_gans": ours},
        "images_per_second": {"torch_fidelity": num / theirs, "lit_gans": num / ours},
        "speedup": theirs / ours,
        "fid": {"torch_fidelity": theirs_values.get("frechet_inception_distance"), "lit_gans": _fid(values)},
    }


def _fid(values: dict[str, float]) -> float | None:
    return values.get("metric/fid_inception")


def _print_table(result: dict[str, Any]) -> None:
    table = Table("images/s", "torch-fidelity", "lit_gans", "speedup", box=None)
    for name in ("features", "evaluation"):
        part = result[name]
        speedup = part["speedup"]["median"] if isinstance(part["speedup"], dict) else part["speedup"]
        rates = (f"{part['images_per_second'][library]:.1f}" for library in ("torch_fidelity", "lit_gans"))
        table.add_row(name, *rates, f"{speedup:.2f}")
    Console().print(table)
