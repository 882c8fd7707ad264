"""`python -m benchmarks metrics`: speed of an evaluation, compared with torch-fidelity on the same work."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.utils.data import Dataset

from benchmarks.common import environment, now, ratios, report, spread, take_turns
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput, refuse_below
from lit_gans.metrics import FrechetInceptionDistance, InceptionScore, KernelInceptionDistance
from lit_gans.metrics.evaluator import Evaluator
from lit_gans.metrics.extractors.inception import FILE, InceptionExtractor
from lit_gans.metrics.extractors.weights import hub_path

_NUM = {"full": 500, "smoke": 8}
_BATCHES = {"full": 8, "smoke": 1}
_SUBSETS = 10
_LIBRARIES = ("lit_gans", "torch_fidelity")


class Images(Dataset):
    """Images as torch-fidelity reads them, one at a time."""

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
    """Times Inception's feature extraction, with interleaved batches, and then a full evaluation, in both libraries.

    Both use the same weights: the usual file if it is cached, otherwise random weights, which cost the same. A full
    evaluation extracts the features of real and generated images and computes FID, Inception Score and KID. Returns
    and prints seconds, images per second, and our speed relative to torch-fidelity's.

    Args:
        preset: `smoke` finishes in seconds and omits the FID, whose eigenvalues take torch-fidelity half a minute.
        output: optional JSON file to write.
        num: number of real and of generated images; null uses the preset's number.
        batch_size: number of images per forward pass.
        image_size: size of the random input images.
        device: device to compute on; null uses CUDA if available, otherwise the CPU.
        seed: seed of images and weights.
    """
    num = _NUM[preset] if num is None else num
    refuse_below(2, num=num)
    refuse_below(1, batch_size=batch_size, image_size=image_size)
    if num < 2 * batch_size and preset == "full":
        raise RefusedInput(f"num={num} must be at least two batches of batch_size={batch_size}.")
    where = chosen_device(device)
    batch_size = min(batch_size, num // 2)
    real, fake = _blocks(num, image_size, seed), _blocks(num, image_size, seed + 1)
    with tempfile.TemporaryDirectory() as folder:
        path = hub_path(FILE) if hub_path(FILE).is_file() else random_weights(Path(folder) / "random.pth", seed)
        result = {
            "benchmark": "metrics",
            "preset": preset,
            "num": num,
            "batch_size": batch_size,
            "image_size": image_size,
            "weights": path.name,
            **environment(where),
            "features": _features(path, fake, batch_size, _BATCHES[preset], where),
            "evaluation": _evaluation(path, real, fake, batch_size, preset == "full", where),
        }
    return report(result, {"Inception, images/s": _rows(result)}, [], output)


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
        if isinstance(module, torch.nn.BatchNorm2d):  # so that it is not the identity
            module.weight.uniform_(0.8, 1.2, generator=generator)
            torch.nn.init.normal_(module.get_buffer("running_mean"), 0, 0.05, generator=generator)
    torch.save(network.state_dict(), path)
    return path


def _blocks(num: int, image_size: int, seed: int) -> UInt8[Tensor, "n 3 s s"]:
    small = torch.rand(num, 3, 4, 4, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.interpolate(small, (image_size, image_size)).mul(255).to(torch.uint8)


@torch.no_grad()
def _features(path: Path, images: Tensor, batch_size: int, num_batches: int, device: torch.device) -> dict[str, Any]:
    """Times the two networks on the same batches in turns; the first batch is not counted."""
    from torch_fidelity.feature_extractor_inceptionv3 import FeatureExtractorInceptionV3

    networks: dict[str, Callable[[Tensor], Any]] = {
        "torch_fidelity": FeatureExtractorInceptionV3("theirs", ["2048", "logits_unbiased"], str(path)).to(device),
        "lit_gans": InceptionExtractor(str(path), sha256=None).to(device),
    }

    def timed(network: Callable[[Tensor], Any]) -> Callable[[], tuple[float, Tensor]]:
        counter = count()

        def work() -> tuple[float, Tensor]:
            start = next(counter) * batch_size % (len(images) - batch_size + 1)
            batch = images[start : start + batch_size].to(device)
            begun = now(device)
            features = network(batch)[0]
            return now(device) - begun, features

        return work

    turns = take_turns({name: timed(network) for name, network in networks.items()}, num_batches + 1)
    seconds = {name: [taken for taken, _ in found][1:] for name, found in turns.items()}
    pairs = [(ours, theirs) for (_, ours), (_, theirs) in zip(*(turns[name] for name in _LIBRARIES), strict=True)]
    return {
        "images_per_second": {name: batch_size / spread(times)["median"] for name, times in seconds.items()},
        "speedup": ratios(seconds["torch_fidelity"], seconds["lit_gans"]),
        "largest_relative_difference": max(
            float((ours - theirs).abs().max() / theirs.abs().max()) for ours, theirs in pairs
        ),
    }


def _evaluation(
    path: Path, real: Tensor, fake: Tensor, batch_size: int, fid: bool, device: torch.device
) -> dict[str, Any]:
    """Times an evaluation by each library; theirs cannot but load its network within the time."""
    import torch_fidelity

    subset = len(real) // 2
    scores = {
        "inception_score": InceptionScore(splits=2),
        "kid": KernelInceptionDistance(subsets=_SUBSETS, subset_size=subset),
        "fid": FrechetInceptionDistance() if fid else None,
    }
    begun = now(device)
    extractor = InceptionExtractor(str(path), sha256=None)
    evaluator = Evaluator(extractor, scores, len(fake), batch_size, 0, device)
    evaluator.add_real(real)
    values = evaluator.measure(fake)
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


def _rows(result: dict[str, Any]) -> list[dict[str, str]]:
    rows = []
    for name in ("features", "evaluation"):
        speed, times = result[name]["images_per_second"], result[name]["speedup"]
        times = times["median"] if isinstance(times, dict) else times
        rates = {library: f"{speed[library]:.1f}" for library in ("torch_fidelity", "lit_gans")}
        rows.append({"": name, **rates, "times as fast": f"{times:.2f}"})
    return rows
