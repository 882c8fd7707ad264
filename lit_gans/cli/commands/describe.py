"""`lit-gans describe model=NAME data.image_size=64`: parameters, multiply-adds and memory of networks.

Examples:
    lit-gans describe model=dcgan
    lit-gans describe model=sngan data.image_size=32 data.channels=1
    lit-gans describe model=wgan_gp model.network=resnet model.block=separable
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, UntypedStorage, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from lit_gans.cli.command import run
from lit_gans.cli.tables import markdown
from lit_gans.common.size import size_text
from lit_gans.training.module import AdversarialModule

logger = logging.getLogger(__name__)

_ADAM = 4  # number of values per parameter: weight, gradient and two moments
_MIB = 2**20


def main(arguments: list[str]) -> int:
    """Runs the command on the meta device, which allocates no weights, and returns the exit code."""
    with torch.device("meta"):
        return run(describe, arguments)


def describe(model: AdversarialModule) -> list[dict[str, Any]]:
    """Prints the numbers of parameters and multiply-adds, and the memory, of every network.

    Args:
        model: model to describe; `data.image_size` and `data.channels` set the size of its images.

    Returns:
        One row per network. `parameters` is the number of trainable parameters, and `multiply_adds` is the number of
        multiply-adds in the forward pass of one image. `weights_mib` is the memory of the weights in float32.
        `training_mib` also includes gradients and Adam's moments. `activations_mib` is the memory of the activations
        that the backward pass of one image needs.
    """
    logger.info("counting the operations of %s for one image", type(model).__name__)
    with torch.device("meta"):
        networks = model.rebuilt()
        batch = model.dummy_batch(1)
        generator = networks.generator
        rows = [_row("generator", generator, lambda: model.generate(generator, batch))]
        images = torch.empty(1, *model.image_shape)

        def scores(network: nn.Module) -> Any:
            return network(images, *model.condition(batch))

        for name in model.discriminator_names:
            network = networks.get_submodule(name)
            rows.append(_row(name, network, partial(scores, network)))
    sizes = f"{size_text(model.image_size)}, {model.channels} channels"
    table = [["network", "parameters", "multiply-adds", "weights", "with Adam", "activations"]]
    for row in rows:
        mib = [f"{row[name]:,.2f} MiB" for name in ("weights_mib", "training_mib", "activations_mib")]
        table.append([row["network"], f"{row['parameters']:,}", f"{row['multiply_adds']:,}", *mib])
    print(f"{type(model).__name__}, {sizes}; multiply-adds and activations of one image, in float32\n")
    print("\n".join(markdown(table)))
    return rows


def _row(name: str, network: nn.Module, forward: Callable[[], Tensor]) -> dict[str, Any]:
    network.eval()  # in evaluation mode, batch norm accepts a single image
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    weights_and_buffers = {tensor.untyped_storage() for tensor in (*network.parameters(), *network.buffers())}
    activations: set[UntypedStorage] = set()

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage() not in weights_and_buffers:
            activations.add(tensor.untyped_storage())
        return tensor

    with FlopCounterMode(display=False) as counter, saved_tensors_hooks(keep, lambda tensor: tensor):
        forward()
    num = sum(parameter.numel() for parameter in parameters)
    weights = sum(parameter.numel() * 4 for parameter in parameters) / _MIB
    return {
        "network": name,
        "parameters": num,
        "multiply_adds": counter.get_total_flops() // 2,
        "weights_mib": weights,
        "training_mib": _ADAM * weights,
        "activations_mib": sum(storage.nbytes() for storage in activations) / _MIB,
    }
