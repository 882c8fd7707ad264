"""Exports generators as ONNX files, for runtimes without PyTorch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from lit_gans.common.atomic import replacing
from lit_gans.common.errors import import_extra
from lit_gans.training.module import AdversarialModule
from lit_gans.training.sampling import Weights

_ROWS = 2  # batch size of the example inputs; the exported generator supports any batch size


class GeneratorGraph(nn.Module):
    """Wraps a generator for export, with tensors as inputs and images in [0, 1] as output.

    The images are the same as the images of `AdversarialModule.sample`.

    Args:
        module: module of a trained model.
        weights: see `AdversarialModule.sample`.
    """

    def __init__(self, module: AdversarialModule, weights: Weights | None = None) -> None:
        super().__init__()
        self.generator = copy.deepcopy(module.sampling_generator(weights)).cpu().eval().requires_grad_(False)
        self._parts: tuple[Callable[..., Tensor], Callable[[Tensor], Tensor]] = (module.generate, module.to_unit_range)
        self.names = list(example_inputs(module))

    def forward(self, *inputs: Tensor) -> Tensor:
        """Returns images (n, channels, height, width) in [0, 1]. Points are returned without scaling."""
        # stores only bound methods rather than the module, so that the module's other networks are not exported
        generate, to_unit_range = self._parts
        return to_unit_range(generate(self.generator, dict(zip(self.names, inputs, strict=True))))


def example_inputs(module: AdversarialModule, num: int = _ROWS, seed: int = 0) -> dict[str, Tensor]:
    """Returns random inputs of the exported generator by name.

    The inputs are latents, and labels if the model has classes. For pix2pix, the inputs are the images to translate and
    the random numbers of the dropout layers.
    """
    dummy = module.dummy_batch(num)
    generator = torch.Generator().manual_seed(seed)
    shape = dummy["latents" if "latents" in dummy else "input"].shape
    inputs = torch.randn(shape, generator=generator).clamp(-1, 1)
    labels = torch.arange(num) % module.num_classes if module.num_classes else None
    batch = module.sampling_batch(inputs, labels, seed)
    return {name: value for name, value in batch.items() if name != "jitter"}


def export_onnx(module: AdversarialModule, path: str | Path, weights: Weights | None = None) -> Path:
    """Exports the generator as an ONNX file. The inputs can have any batch size, and the output is named `images`.

    Args:
        module: module of a trained model.
        path: path of the ONNX file.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.

    Returns:
        The path of the file.

    Raises:
        RefusedInput: the packages of the extra `export` are not installed, or averaged weights are requested but do not
            exist.
    """
    for package in ("onnx", "onnxscript"):  # packages that torch's exporter requires
        import_extra(package, "export")
    graph = GeneratorGraph(module, weights)
    inputs = example_inputs(module)
    rows = torch.export.Dim("num_images", min=1)
    with replacing(Path(path)) as part, warnings.catch_warnings(), torch.no_grad():
        warnings.filterwarnings("ignore")  # the exporter warns about its own libraries
        torch.onnx.export(
            graph,
            tuple(inputs.values()),
            part,
            input_names=list(inputs),
            output_names=["images"],
            dynamic_shapes=(tuple({0: rows} for _ in inputs),),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    return Path(path)
