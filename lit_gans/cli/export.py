"""`lit-gans export checkpoint=PATH [format=onnx]`: the generator as safetensors with its configuration, or as ONNX.

Examples:
    lit-gans export checkpoint=outputs/dcgan_digits/version_0/checkpoints/last.ckpt
    lit-gans export checkpoint=outputs/dcgan_digits/version_0 output=my_generator
    lit-gans export checkpoint=outputs/dcgan_digits/version_0 format=onnx
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lit_gans.checkpoints.locate import find_checkpoint, run_of
from lit_gans.common.errors import RefusedInput
from lit_gans.config.load import load
from lit_gans.config.run_folder import refuse_file, refuse_folder, replacing_note
from lit_gans.export.onnx import example_inputs, export_onnx
from lit_gans.export.safetensors import WEIGHTS, save_generator
from lit_gans.training.sampling import Weights


def export(
    checkpoint: str,
    format: Literal["safetensors", "onnx"] = "safetensors",
    output: str | None = None,
    weights: Weights | None = None,
) -> Path:
    """Writes the generator of a checkpoint for use elsewhere.

    `safetensors` writes a folder with the weights, the class with its arguments, and a model card, in the layout of the
    Hugging Face Hub; `load_generator` reads it. `onnx` writes a file for runtimes without PyTorch.

    Args:
        checkpoint: path of a checkpoint, or folder of a run, which uses its best checkpoint, or the last if there is
            none.
        format: `safetensors` or `onnx`.
        output: folder, or ONNX file; null uses `generator/` or `generator.onnx` in the run's folder.
        weights: `ema` or `raw`; null uses the averaged weights if they exist.

    Returns:
        The path of the folder or file.

    Raises:
        RefusedInput: the checkpoint or the packages cannot be used, or the output cannot be written.
    """
    path = find_checkpoint(checkpoint)
    target = Path(output) if output else run_of(path) / ("generator" if format == "safetensors" else "generator.onnx")
    refuse_folder(target, "output") if format == "safetensors" else refuse_file(target, "output")
    module = load(path)
    replaced = replacing_note(target / WEIGHTS if format == "safetensors" else target)
    used = "raw" if weights == "raw" or module.averaged_generator is None else "ema"
    try:
        written = (save_generator if format == "safetensors" else export_onnx)(module, target, weights)
    except OSError as error:  # such as a full disk
        raise RefusedInput(f"output={target} cannot be written: {error.strerror or error}.") from error
    print(f"generator of {type(module).__name__}, {used} weights: {written}{replaced}")
    if format == "onnx":
        shapes = (f"{name} ({', '.join(map(str, ['n', *x.shape[1:]]))})" for name, x in example_inputs(module).items())
        print(f"  inputs    {', '.join(shapes)}")
        print(f"  output    images (n, {', '.join(map(str, module.image_shape))})")
    return written
