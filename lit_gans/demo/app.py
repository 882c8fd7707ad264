"""The demo as a gradio app, for a browser on this machine or a Space of the Hugging Face hub."""

from __future__ import annotations

from functools import partial
from typing import Any

from lit_gans.common.errors import import_extra
from lit_gans.demo.explore import Explorer
from lit_gans.training.adversarial import AdversarialModule

_FARTHEST = 6.0  # along a direction, in standard deviations of a latent
_NO_TRUNCATION = 3.0  # the end of the slider


def app(module: AdversarialModule, title: str = "", num_directions: int = 5) -> Any:
    """Returns a `gradio.Blocks`: seed, class, truncation, directions, and a walk between two seeds.

    Args:
        module: a GAN that maps latents to images, such as `lit_gans.load(CHECKPOINT)`.
        title: title of the page.
        num_directions: number of sliders for directions, see `lit_gans.latents.directions`.

    Raises:
        RefusedInput: gradio is not installed.
    """
    gradio = import_extra("gradio", "demo-app")
    explorer = Explorer(module, num_directions)

    def bound(value: float) -> float | None:
        return None if value >= _NO_TRUNCATION else value

    def image(seed: float, truncation: float, label: int | None, *amounts: float) -> Any:
        return explorer.image(int(seed), label, bound(truncation), amounts)

    def walk(first: float, second: float, truncation: float, label: int | None) -> Any:
        return explorer.walk(int(first), int(second), label=label, truncation=bound(truncation))

    with gradio.Blocks(title=title or type(module).__name__) as blocks:
        gradio.Markdown(f"# {title or type(module).__name__}")
        with gradio.Row():
            with gradio.Column():
                seed = gradio.Number(0, label="Seed", precision=0)
                again = gradio.Button("Next seed")
                classes = [(f"class {number}", number) for number in range(module.num_classes)]
                label = gradio.Dropdown(classes, value=0 if classes else None, label="Class", visible=bool(classes))
                truncation = gradio.Slider(
                    0.3,
                    _NO_TRUNCATION,
                    _NO_TRUNCATION,
                    label="Truncation",
                    info="Smaller: more typical images, less variety. At the right end: none.",
                )
                slider = partial(gradio.Slider, -_FARTHEST, _FARTHEST, 0, step=0.1)
                sliders = [slider(label=f"Direction {number + 1}") for number in range(len(explorer.directions))]
            picture = gradio.Image(label="Image", type="numpy")
        with gradio.Row():
            first, second = (gradio.Number(n, label=f"Seed {name}", precision=0) for n, name in ((0, "A"), (1, "B")))
            go = gradio.Button("Walk from A to B")
        gallery = gradio.Gallery(label="Walk", columns=9, type="numpy")
        inputs: list[Any] = [seed, truncation, label, *sliders]
        for control in inputs:
            control.change(image, inputs, picture)
        again.click(lambda value: int(value) + 1, seed, seed)
        go.click(walk, [first, second, truncation, label], gallery)
        blocks.load(walk, [first, second, truncation, label], gallery, api_name="walk")
        blocks.load(image, inputs, picture, api_name="image")
    return blocks
