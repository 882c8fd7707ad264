"""What the cost model needs of several processes: the network between them, computation alone, and the real step."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping
from typing import Any

import torch
from lightning.pytorch import Trainer
from torch import distributed

from benchmarks.study.training import train
from lit_gans.config.signatures import construct
from lit_gans.strategies.ddp import NetworkDDP
from lit_gans.training.adversarial import AdversarialModule

_REPEATS = 5
_SIZES = (4096, 2**22)  # bytes of the messages: latency dominates the first, bandwidth the second


class SilentDDP(NetworkDDP):
    """Data parallel training whose replicas exchange no gradients: what remains of a step is computation."""

    def setup_optimizers(self, trainer: Trainer) -> None:
        super().setup_optimizers(trainer)
        for replica in self.replicas.values():
            replica.register_comm_hook(None, _exchange_nothing)


def _exchange_nothing(state, bucket):  # torch refuses annotations that are strings, as here all are
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def measure_link(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what this rank measures; every rank calls it, in the environment that torchrun gives.

    Args:
        settings: those of `train`.

    Returns:
        `all_reduces`: median seconds of an all-reduce by its bytes. `computation`: seconds of a step without the
        exchange of gradients, with all processes at once. `seconds`, `images_per_second`: of the real step.
        `gradients`: bytes of the generator's and of all discriminators' gradients. `n_critic` and `reuses_fake` of the
        module.
    """
    module = construct(settings["model"], "model")
    generator, discriminator = gradient_bytes(module)
    on_cuda = settings["device"] == "cuda"
    distributed.init_process_group("nccl" if on_cuda else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_cuda else torch.device("cpu")
    found = {
        "all_reduces": {str(size): _all_reduce_seconds(size, device) for size in _SIZES},
        "gradients": [generator, discriminator],
        "n_critic": module.n_critic,
        "reuses_fake": module.reuses_fake and module.generator_batch_multiple == 1,
        "computation": train(settings, strategy=SilentDDP())["seconds"],
    }
    real = train(settings, strategy=NetworkDDP())
    return found | {name: real[name] for name in ("seconds", "images_per_second", "generator_images_per_second")}


def gradient_bytes(module: AdversarialModule) -> tuple[int, int]:
    """Returns the bytes of the gradients of the generator, and of all discriminators together."""
    sizes = {name: _bytes(module.get_submodule(name)) for name in module.network_names}
    generator = sizes.pop("generator")
    return generator, sum(sizes.values())


def _bytes(network: torch.nn.Module) -> int:
    return sum(p.numel() * p.element_size() for p in network.parameters() if p.requires_grad)


def _all_reduce_seconds(num_bytes: int, device: torch.device) -> float:
    tensor, times = torch.zeros(num_bytes // 4, device=device), []
    for _ in range(_REPEATS + 1):
        distributed.barrier()
        start = time.perf_counter()
        distributed.all_reduce(tensor)
        float(tensor[0])  # waits for the device
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])
