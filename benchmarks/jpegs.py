"""JPEGs that the benchmarks write for themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 178, 218  # CelebA's


def write_jpegs(folder: Path, num: int, seed: int) -> Path:
    """Writes JPEGs of smooth colors with some noise, which compress about as photographs do; returns the folder."""
    generator = np.random.default_rng(seed)
    (folder / "all").mkdir(parents=True, exist_ok=True)
    for number in range(num):
        coarse = Image.fromarray(generator.integers(0, 256, (12, 10, 3), dtype=np.uint8))
        pixels = np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)).astype(np.int16)
        pixels = (pixels + generator.integers(-8, 9, pixels.shape)).clip(0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "all" / f"{number:06d}.jpg", quality=90)
    return folder
