"""Gradio app of `lit-gans demo`, which runs on this machine or in a Hugging Face Space."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from lit_gans.common.errors import RefusedInput, import_extra
from lit_gans.data.images import viewable
from lit_gans.latents.directions import directions
from lit_gans.latents.interpolation import slerp
from lit_gans.latents.truncation import truncated, uses_length
from lit_gans.training.module import AdversarialModule

_MIN_WIDTH = 384  # smaller images are enlarged by a whole factor to at most this width in pixels, without smoothing
_MAX_AMOUNT = 6.0  # maximum distance along a direction, in standard deviations of a latent
_NO_TRUNCATION = 3.0  # maximum of the truncation slider, which switches truncation off


class Explorer:
    """Generates the images that the app displays.

    Args:
        module: GAN that maps latents to images.
        num_directions: number of directions, limited to the dimension of the latents.

    Raises:
        RefusedInput: If the module has no latents.
    """

    def __init__(self, module: AdversarialModule, num_directions: int = 5) -> None:
        self.module = module
        self._latent(0, None)  # raises an error before the page is built if the module has no latents
        try:
            self.directions, _ = directions(module, min(num_directions, module.latent_dim))
        except RefusedInput:  # the generator has no layer from which directions can be computed
            self.directions = torch.empty(0, module.latent_dim)

    def image(
        self,
        seed: int,
        label: int | str | None = None,
        truncation: float | None = None,
        amounts: tuple[float, ...] = (),
    ) -> UInt8[np.ndarray, "h w c"]:
        """Returns one image, enlarged for the screen.

        Args:
            seed: seed of the latent.
            label: class of the image, for a model with classes.
            truncation: bound for the absolute values of the latent; None sets no bound.
            amounts: distances by which the latent is moved along the directions.
        """
        latent = self._latent(seed, truncation)
        for direction, amount in zip(self.directions, amounts, strict=False):
            latent = latent + amount * direction
        return self._generate(latent, label)[0]

    def walk(
        self, first: int, second: int, steps: int = 9, label: int | str | None = None, truncation: float | None = None
    ) -> list[UInt8[np.ndarray, "h w c"]]:
        """Returns the images of a walk from the latent of one seed to the latent of another seed, with both ends."""
        start, end = (self._latent(seed, truncation) for seed in (first, second))
        return self._generate(slerp(start, end, steps)[0], label)

    def _latent(self, seed: int, truncation: float | None) -> Float[Tensor, "1 z"]:
        return truncated(self.module.latents(1, int(seed)), truncation)

    def _generate(self, latents: Float[Tensor, "n z"], label: int | str | None) -> list[UInt8[np.ndarray, "h w c"]]:
        labels = self.module.labels(len(latents), label)
        return enlarged(self.module.decode(latents, labels=labels).cpu())


def enlarged(images: Float[Tensor, "n c h w"]) -> list[UInt8[np.ndarray, "h2 w2 c2"]]:
    """Returns images in [0, 1] enlarged for the screen, without smoothing."""
    images = viewable(images)
    times = max(1, _MIN_WIDTH // images.shape[-1])
    large = images.repeat_interleave(times, -1).repeat_interleave(times, -2).mul(255).round().byte()
    colored = large.expand(-1, 3, -1, -1) if large.shape[1] == 1 else large
    return [*colored.permute(0, 2, 3, 1).numpy()]


def app(
    module: AdversarialModule,
    title: str = "",
    num_directions: int = 5,
    real: UInt8[Tensor, "n c h w"] | None = None,
) -> Any:
    """Returns a `gradio.Blocks` app with controls for seed, class, truncation, directions and a walk between two seeds.

    Args:
        module: GAN that maps latents to images, such as `lit_gans.load(CHECKPOINT)`.
        title: title of the page; empty uses the name of the class.
        num_directions: number of sliders for directions, see `lit_gans.latents.directions`.
        real: real images to show below the generated ones; None shows none.

    Raises:
        RefusedInput: If gradio is not installed, or if the module has no latents.
    """
    gradio = import_extra("gradio", "demo-app")
    explorer = Explorer(module, num_directions)

    def bound(value: float) -> float | None:
        return None if value >= _NO_TRUNCATION else value

    def image(seed: float, truncation: float, label: int | str | None, *amounts: float) -> Any:
        return explorer.image(int(seed), label, bound(truncation), amounts)

    def walk(first: float, second: float, truncation: float, label: int | str | None) -> Any:
        return explorer.walk(int(first), int(second), label=label, truncation=bound(truncation))

    with gradio.Blocks(title=title or type(module).__name__) as blocks:
        gradio.Markdown(f"# {title or type(module).__name__}")
        with gradio.Row():
            with gradio.Column():
                seed = gradio.Number(0, label="Seed", precision=0)
                next_seed = gradio.Button("Next seed")
                unnamed = [(f"class {number}", number) for number in range(module.num_classes)]
                classes = [(name, name) for name in module.class_names] or unnamed
                first_class = classes[0][1] if classes else None
                label = gradio.Dropdown(classes, value=first_class, label="Class", visible=bool(classes))
                truncation = gradio.Slider(
                    0.3,
                    _NO_TRUNCATION,
                    _NO_TRUNCATION,
                    label="Truncation",
                    info="A smaller value gives more typical and less diverse images. The maximum means no truncation.",
                    visible=uses_length(module),
                )
                slider = partial(gradio.Slider, -_MAX_AMOUNT, _MAX_AMOUNT, 0, step=0.1)
                sliders = [slider(label=f"Direction {number + 1}") for number in range(len(explorer.directions))]
            picture = gradio.Image(label="Image", type="numpy")
        with gradio.Row():
            first, second = (gradio.Number(n, label=f"Seed {name}", precision=0) for n, name in ((0, "A"), (1, "B")))
            start_walk = gradio.Button("Walk from A to B")
        gallery = gradio.Gallery(label="Walk", columns=9, type="numpy")
        if real is not None:
            gradio.Gallery(enlarged(real / 255), label="Real images", columns=6, type="numpy")
        inputs: list[Any] = [seed, truncation, label, *sliders]
        for control in inputs:
            control.change(image, inputs, picture)
        next_seed.click(lambda value: int(value) + 1, seed, seed)
        start_walk.click(walk, [first, second, truncation, label], gallery)
        blocks.load(walk, [first, second, truncation, label], gallery, api_name="walk")
        blocks.load(image, inputs, picture, api_name="image")
    return blocks
