"""`lit-gans export checkpoint=PATH [format=onnx]`: writes networks as safetensors, as ONNX or for diffusers.

Examples:
    lit-gans export checkpoint=outputs/dcgan_digits/version_0 dtype=float16 output=my_networks
    lit-gans export checkpoint=outputs/dcgan_digits/version_0 format=onnx
    lit-gans export checkpoint=outputs/autoencoder_kl_emoji/version_0 format=diffusers output=my_vae
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from lit_gans.checkpoints.diffusers import WEIGHTS as DIFFUSERS_WEIGHTS
from lit_gans.checkpoints.exported import CARD, TRAINING, WEIGHTS
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.checkpoint import turn
from lit_gans.common.errors import RefusedInput
from lit_gans.config.load import module_from
from lit_gans.config.run_folder import output_file, results_folder
from lit_gans.export.card import card_for_diffusers, card_for_onnx, described, refuse_license
from lit_gans.export.diffusers import refuse_for_diffusers, save_diffusers
from lit_gans.export.onnx import example_inputs, export_onnx
from lit_gans.export.safetensors import Dtype, save_networks, write_file
from lit_gans.training.sampling import Weights
from lit_gans.training.translator import Direction


def export(
    checkpoint: str,
    format: Literal["safetensors", "onnx", "diffusers"] = "safetensors",
    output: str | None = None,
    weights: Weights | None = None,
    direction: Direction = "a_to_b",
    dtype: Dtype = "float32",
    optimizers: bool = False,
    license: str | None = None,
    scaling_factor: float | None = None,
    shift_factor: float | None = None,
) -> Path:
    """Writes the networks of a checkpoint in a format for other programs.

    `safetensors` writes a folder with all networks, the class with its arguments, and a model card, in the layout of
    the Hugging Face Hub. `lit_gans.load`, `init_from` and all commands accept the folder as a checkpoint. `onnx` writes
    the generator as a file for runtimes without PyTorch. `diffusers` writes an autoencoder as a folder that
    `diffusers.AutoencoderKL` loads.

    Args:
        checkpoint: path of a checkpoint, of a run folder or of a folder that `lit-gans export` wrote. For a run folder,
            uses the best checkpoint, or else the last.
        format: `safetensors`, `onnx` or `diffusers`.
        output: output folder, or path of the ONNX file; null uses `networks/`, `generator.onnx` or `diffusers/` in the
            run folder.
        weights: `ema` writes the averaged generator as the generator; `raw` leaves out the averaged generator; null
            writes both to safetensors, and the averaged generator to other formats if it exists.
        direction: `b_to_a` writes CycleGAN's generator of the first domain to ONNX instead of the generator of the
            second domain.
        dtype: `float32`, or `float16` for files of half the size.
        optimizers: whether to also write the state that `resume` needs, so that other users can continue the run.
        license: license of the weights in the model card, as an identifier of the Hugging Face Hub such as
            `cc-by-sa-4.0`; null uses the license of the training data, if known, and `other` otherwise.
        scaling_factor: factor that `diffusers` stores for diffusion models, see `lit-gans scale`; null uses the factor
            of the model.
        shift_factor: shift that `diffusers` stores for diffusion models; null uses the shift of the model.

    Returns:
        The path of the folder or file.

    Raises:
        RefusedInput: If the checkpoint cannot be exported, a package is missing, or the output cannot be written.
    """
    if format == "onnx" and (optimizers or dtype != "float32"):
        raise RefusedInput("format=onnx writes a generator in float32: leave out dtype= and optimizers=.")
    if format == "diffusers" and optimizers:
        raise RefusedInput("format=diffusers writes an autoencoder without optimizers: leave out optimizers=.")
    if format == "safetensors" and direction == "b_to_a":
        raise RefusedInput(f"direction={direction}: format=safetensors writes both directions; leave out direction=.")
    if format != "onnx" and Path(output or "").suffix == ".onnx":
        raise RefusedInput(f"output={output}: format={format} writes a folder; for an ONNX file, add format=onnx.")
    factors = {"scaling_factor": scaling_factor, "shift_factor": shift_factor}
    factors = {name: value for name, value in factors.items() if value is not None}
    if factors and format != "diffusers":
        raise RefusedInput(f"{'= and '.join(factors)}= applies to format=diffusers only: leave it out.")
    refuse_license(license)
    path = find_checkpoint(checkpoint)
    name = {"safetensors": "networks", "onnx": "generator.onnx", "diffusers": "diffusers"}[format]
    target = Path(output) if output else results_folder(checkpoint, path) / name
    if format == "safetensors" and not optimizers and (path / TRAINING).exists() and path.resolve() == target.resolve():
        raise RefusedInput(
            f"output={target} is the exported folder itself, whose optimizers would be lost: add optimizers=true, or"
            " choose another output."
        )
    content = read_checkpoint(path)
    module = module_from(content, path)
    turn(module, direction)
    if format == "diffusers":
        refuse_for_diffusers(module, scaling_factor)
    card = target.with_name(f"{target.name}.md")
    if format == "onnx" and card.exists():
        output_file(card)
        if b"library_name: onnx\n" not in card.read_bytes():
            raise RefusedInput(f"output={target}: its model card would replace {card}: choose another name.")
    output_file({"safetensors": target / WEIGHTS, "onnx": target, "diffusers": target / DIFFUSERS_WEIGHTS}[format])
    if format == "safetensors":
        written = save_networks(content, target, weights, dtype, optimizers, license)
        print(f"networks of {type(module).__name__}: {written}")
        return written
    used = module.used_weights(weights)
    if format == "diffusers":
        written = save_diffusers(module, target, weights, dtype, **factors)
        write_file(written / CARD, card_for_diffusers(described(content, used, license), dtype))
        print(f"generator of {type(module).__name__}, {used} weights: {written}")
        return written
    written = export_onnx(module, target, weights)
    shapes = {name: f"({', '.join(map(str, ['n', *x.shape[1:]]))})" for name, x in example_inputs(module).items()}
    described_as = described(content, used, license, measured=direction == "a_to_b")
    write_file(card, card_for_onnx(described_as, written.name, shapes))
    print(f"generator of {type(module).__name__}, {used} weights: {written}")
    print(f"  inputs    {', '.join(f'{name} {shape}' for name, shape in shapes.items())}")
    print(f"  output    images (n, {', '.join(map(str, module.image_shape))})")
    return written
