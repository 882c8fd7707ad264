"""Parts of `lit-gans bench gpu` other than training steps: the wait for data, and the speed of an evaluation."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from lit_gans.benchmark.jpegs import write_jpegs
from lit_gans.benchmark.measure import now, spread
from lit_gans.benchmark.metrics import random_weights
from lit_gans.benchmark.waiting import waiting_share
from lit_gans.data.sources.folder import Folder
from lit_gans.metrics.extractors.base import Extractor
from lit_gans.metrics.extractors.digits import DigitsExtractor
from lit_gans.metrics.extractors.inception import InceptionExtractor

_ROUNDS = 8


def data_wait(folder: Path, device: torch.device, smoke: bool) -> dict[str, Any]:
    """Returns the share of DCGAN's training that waits for images that are stored on the device."""
    num, size, width, batch_size = (96, 16, 4, 8) if smoke else (1024, 64, 64, 64)
    served: dict[str, Any] = {"image_size": size, "batch_size": batch_size}
    source = Folder(str(write_jpegs(folder / "jpegs", num, 0)), cache=str(folder / "cache"), **served)
    steps = 4 if smoke else 60
    return waiting_share(source, "device", device, steps, "bf16", generator_width=width, discriminator_width=width)


@torch.no_grad()
def evaluation(folder: Path, device: torch.device, smoke: bool) -> dict[str, Any]:
    """Returns the images per second of Inception with random weights, or of digits' classifier without
    torch-fidelity.
    """
    extractor: Extractor = DigitsExtractor()
    if not smoke and importlib.util.find_spec("torch_fidelity") is not None:
        extractor = InceptionExtractor(str(random_weights(folder / "random.pth", 0)), sha256=None)
    extractor = extractor.to(device)
    images = torch.randint(0, 256, (16 if smoke else 256, 3, 32, 32), dtype=torch.uint8, device=device)
    times: list[float] = []
    for _ in range(_ROUNDS + 1):
        begun = now(device)
        extractor(images)
        times.append(now(device) - begun)
    return {"extractor": extractor.name, "images_per_second": len(images) / spread(times[1:])["median"]}
