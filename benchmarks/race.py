"""Interleaves the steps of training loops in one process, so that all run under the same conditions."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from benchmarks.loops import BareLoop, Loop, TutorialLoop
from benchmarks.measure import now, quiet_trainer
from benchmarks.turns import ratios, turn_order
from lit_gans.callbacks import EMA, Throughput
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.training.adversarial import AdversarialModule

_NUM_BATCHES = 4
EMA_DECAY = 0.999


class Race:
    """The loader of the real `Trainer`: before it yields a batch, the loops by hand take and time their step on it.

    All time from the yield to the next request counts as `lit_gans`: fetching, step, callbacks, logging.

    Args:
        loops: the loops by hand, by name.
        module: the module in the `Trainer`.
        batches: images on the device, in [-1, 1].
        num_iterations: number of batches to yield.
        sampler: entered around the steps of `lit_gans` from iteration `sampled_from` on.

    Attributes:
        seconds, processor_seconds: of each step of each loop, by the clock and of this thread on a processor. The last
            step of `lit_gans` is not timed: no request follows.
        memory: peak bytes that a step of each loop allocates; CUDA only.
        first_losses: of each loop.
    """

    def __init__(
        self,
        loops: Mapping[str, Loop],
        module: AdversarialModule,
        batches: list[Float[Tensor, "n c s s"]],
        num_iterations: int,
        sampler: AbstractContextManager[object] | None = None,
        sampled_from: int = 0,
    ) -> None:
        self.loops, self.module, self.batches, self.num_iterations = loops, module, batches, num_iterations
        self.device = batches[0].device
        self.seconds: dict[str, list[float]] = {name: [] for name in (*self.loops, "lit_gans")}
        self.processor_seconds: dict[str, list[float]] = {name: [] for name in self.seconds}
        self.memory: dict[str, int] = {}
        self.first_losses: dict[str, dict[str, float]] = {}
        self._sampler, self._sampled_from = sampler, sampled_from

    def __len__(self) -> int:
        return self.num_iterations

    def __iter__(self) -> Iterator[Float[Tensor, "n c s s"]]:
        for iteration in range(self.num_iterations):
            images = self.batches[iteration % len(self.batches)]
            for name in turn_order(self.loops, iteration):
                with self._timed(name):
                    losses = self.loops[name].step(images)
                if iteration == 0:
                    self.first_losses[name] = {key: float(loss) for key, loss in losses.items()}
            sampled = self._sampler is not None and iteration >= self._sampled_from
            with self._sampler if sampled and self._sampler is not None else nullcontext(), self._timed("lit_gans"):
                yield images
            if iteration == 0:
                self.first_losses["lit_gans"] = {name: float(loss) for name, loss in self.module.losses.items()}

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        on_cuda = self.device.type == "cuda"
        if on_cuda:
            before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        start, processor_start = now(self.device), time.thread_time()
        yield
        self.processor_seconds[name].append(time.thread_time() - processor_start)
        self.seconds[name].append(now(self.device) - start)
        if on_cuda:
            allocated = torch.cuda.max_memory_allocated(self.device) - before
            self.memory[name] = max(allocated, self.memory.get(name, 0))


def largest_weight_difference(bare: BareLoop, module: AdversarialModule) -> float:
    """Returns the largest difference of the weights and buffers of `bare` and `lit_gans`, averages included."""
    average = module.averaged_generator
    assert average is not None, "EMA has set it"
    pairs = zip(_tensors((bare.module, bare.average)), _tensors((module, average)), strict=True)
    return max(float((one - other).abs().max()) for one, other in pairs)


def _tensors(networks: Iterable[nn.Module]) -> Iterator[Tensor]:
    return chain.from_iterable(network.state_dict().values() for network in networks)


def beside_others(seconds: Mapping[str, list[float]], name: str) -> dict[str, dict[str, float]]:
    """Returns how many times as fast as the tutorial loop a loop is, and which share it adds to the bare loop's time.

    Args:
        seconds: of each step of each loop.
        name: of the loop; ratios are of steps in the same iteration.
    """
    return {
        "speedup_over_tutorial": ratios(seconds["tutorial"], seconds[name]),
        "cost_over_bare": {key: value - 1 for key, value in ratios(seconds[name], seconds["bare"]).items()},
    }


def run(
    make: Callable[..., AdversarialModule],
    batch_size: int,
    num_iterations: int,
    precision: str,
    compile: bool,
    log_every_n_steps: int,
    seed: int,
    device: torch.device,
) -> tuple[Race, float]:
    """Runs steps of each of the three loops of a GAN, from the same weights.

    Args:
        make: returns a module with a constant learning rate; takes `channels_last`, `compile` and `seed`.
        batch_size: number of images for each discriminator step.
        num_iterations: number of iterations, of which the last is not timed.
        precision: `fp32` or `bf16`.
        compile: whether the loops other than the tutorials' have compiled networks.
        log_every_n_steps: number of iterations between two rows of the log.
        seed: seed of weights, images and latents.
        device: where to train.

    Returns:
        The timings, and the largest difference of the weights of `bare` and `lit_gans`.
    """
    tutorial = make(channels_last=False, seed=seed)
    bare, module = (make(channels_last=True, compile=compile, seed=seed) for _ in range(2))
    for each in (tutorial, bare):
        each.to(device)
    by_hand = BareLoop(bare, bf16=precision == "bf16", ema_decay=EMA_DECAY)
    loops: dict[str, Loop] = {"tutorial": TutorialLoop(tutorial), "bare": by_hand}
    race = Race(loops, module, batches_for(module, batch_size, seed, device), num_iterations)
    fit(race, "bf16-mixed" if precision == "bf16" else "32-true", log_every_n_steps)
    return race, largest_weight_difference(by_hand, module)


def batches_for(
    module: AdversarialModule, batch_size: int, seed: int, device: torch.device
) -> list[Float[Tensor, "n c s s"]]:
    """Returns random images on the device, in [-1, 1], for all discriminator steps of an iteration."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch_size * module.n_critic, module.channels, module.image_size, module.image_size)
    return [torch.rand(shape, generator=generator).mul(2).sub(1).to(device) for _ in range(_NUM_BATCHES)]


def fit(race: Race, precision: Any, log_every_n_steps: int) -> None:
    """Runs a race in a `Trainer` with a logger and callbacks, but no measurements and samples."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = quiet_trainer(
            race.device.type,
            devices=1,
            precision=precision,
            max_epochs=1,
            logger=CSVMetrics(folder),
            callbacks=[EMA(EMA_DECAY), Throughput()],  # measurements and files are not part of a step
            log_every_n_steps=min(log_every_n_steps, len(race)),  # short runs log too
            default_root_dir=folder,
        )
        trainer.fit(race.module, race)
