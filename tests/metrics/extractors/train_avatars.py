"""Training of the network that reads the attributes of cartoon faces, whose weights the package ships,
`avatars.safetensors`: 37 minutes on one core with `python -m tests.metrics.extractors.train_avatars`.

It learns from 40,000 faces, each of them moved, resized, blurred, shaded, with noise, and in front of another color at
random in each epoch, since generated faces have such faults. It is tested on 4,000 others.
"""

import argparse
import time

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from lit_gans.data.faces import ATTRIBUTES
from lit_gans.data.sources.avatars import Avatars
from lit_gans.metrics.extractors.avatars import WEIGHTS, AttributeReader, by_attribute

TRAINING, TEST = 1_000_001, 1_000_002  # seeds of the faces, which no experiment has
_WHITE_SHARE = 0.7  # share of faces in front of white


def faces(num: int, seed: int, image_size: int = 64) -> tuple[Tensor, Tensor]:
    """Returns uint8 faces (n, 4, h, w) with opacity, and the numbers of the options of each attribute (n, 13)."""
    data = Avatars(num_images=num, image_size=image_size, channels=4, faces_seed=seed)
    return data.packed.images, torch.stack([data.attributes[name] for name in ATTRIBUTES], 1)


def before(images: Tensor, background: Tensor) -> Tensor:
    """Returns faces (n, 3, h, w) in [0, 1] in front of colors (n or 1, 3) in [0, 1]."""
    color, opacity = images[:, :3].float() / 255, images[:, 3:].float() / 255
    return color * opacity + background[:, :, None, None] * (1 - opacity)


def _augmented(images: Tensor) -> Tensor:
    """Moves faces by up to 2 pixels, resizes them by up to 6 %, blurs half of them, shades them and adds noise."""
    num, size = len(images), images.shape[-1]
    matrix = torch.zeros(num, 2, 3)
    scale = 1 + (torch.rand(num) - 0.5) * 0.12
    matrix[:, 0, 0] = matrix[:, 1, 1] = scale
    matrix[:, :, 2] = (torch.rand(num, 2) - 0.5) * 8 / size
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    moved = functional.grid_sample(images, grid, align_corners=False, padding_mode="border")
    blurred = functional.avg_pool2d(functional.pad(moved, (1, 1, 1, 1), mode="replicate"), 3, 1)
    moved = moved.lerp(blurred, torch.rand(num, 1, 1, 1) * (torch.rand(num, 1, 1, 1) < 0.5))
    shades = 1 + (torch.rand(num, 3, 1, 1) - 0.5) * 0.15
    noise = torch.randn_like(moved) * torch.rand(num, 1, 1, 1) * 0.04
    return (moved * shades + noise).clamp(0, 1)


@torch.no_grad()
def accuracies(reader: nn.Module, images: Tensor, numbers: Tensor) -> dict[str, float]:
    """Returns the fraction of faces (n, 3, h, w) in [0, 1] whose option is read correctly, for each attribute."""
    logits = torch.cat([reader.eval()(batch)[1] for batch in images.split(500)])
    read = by_attribute(logits)
    return {name: (read[name].argmax(1) == numbers[:, i]).float().mean().item() for i, name in enumerate(ATTRIBUTES)}


def main(num_images: int, epochs: int, batch_size: int, seed: int) -> None:
    """Trains and saves the network, and prints its accuracies on the test faces after each epoch."""
    torch.manual_seed(seed)
    images, numbers = faces(num_images, TRAINING)
    test, test_numbers = faces(num_images // 10, TEST)
    test = before(test, torch.ones(1, 3))
    reader = AttributeReader().to(memory_format=torch.channels_last)
    steps = epochs * (num_images // batch_size)
    optimizer = torch.optim.AdamW(reader.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    for epoch in range(epochs):
        start = time.perf_counter()
        reader.train()
        for batch in torch.randperm(num_images).split(batch_size)[: steps // epochs]:
            colors = torch.rand(batch_size, 3)
            colors[torch.rand(batch_size) < _WHITE_SHARE] = 1
            _, logits = reader(_augmented(before(images[batch], colors)).contiguous(memory_format=torch.channels_last))
            optimizer.zero_grad()
            read = by_attribute(logits).values()
            sum(functional.cross_entropy(each, numbers[batch, i]) for i, each in enumerate(read)).backward()
            optimizer.step()
            schedule.step()
        found = {name: f"{value:.3f}" for name, value in accuracies(reader, test, test_numbers).items()}
        print(f"epoch {epoch + 1}, {time.perf_counter() - start:.0f} s:", found, flush=True)
        state = {name: value.contiguous() for name, value in reader.state_dict().items()}
        halved = {name: value.half() for name, value in state.items() if value.is_floating_point()}
        save_file(state | halved, WEIGHTS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-images", type=int, default=40_000)
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
