"""Interleaves the steps of three training loops in one process, so that all run under the same conditions."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lit_gans.benchmark.loops import BareLoop, Loop, TutorialLoop
from lit_gans.benchmark.measure import now, quiet_trainer
from lit_gans.benchmark.turns import turn_order
from lit_gans.callbacks import EMA, Throughput
from lit_gans.callbacks.csv_metrics import CSVMetrics
from lit_gans.models.dcgan import DCGAN

_NUM_BATCHES = 4
_EMA_DECAY = 0.999


class Race:
    """The loader of the real `Trainer`: before it yields a batch, the loops by hand take and time their step on it.

    All time from the yield to the next request counts as `lit_gans`: fetching, step, callbacks, logging.

    Args:
        tutorial, bare: the loops by hand.
        module: the module in the `Trainer`.
        batches: images on the device, in [-1, 1].
        num_iterations: number of batches to yield.

    Attributes:
        seconds: of each step of each loop. The last step of `lit_gans` is not timed: no request follows.
        memory: peak bytes that a step of each loop allocates; CUDA only.
        first_losses: of each loop.
    """

    def __init__(
        self,
        tutorial: TutorialLoop,
        bare: BareLoop,
        module: DCGAN,
        batches: list[Float[Tensor, "n c s s"]],
        num_iterations: int,
    ) -> None:
        self.loops: dict[str, Loop] = {"tutorial": tutorial, "bare": bare}
        self.bare, self.module, self.batches, self.num_iterations = bare, module, batches, num_iterations
        self.device = batches[0].device
        self.seconds: dict[str, list[float]] = {name: [] for name in (*self.loops, "lit_gans")}
        self.memory: dict[str, int] = {}
        self.first_losses: dict[str, dict[str, float]] = {}

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
            with self._timed("lit_gans"):
                yield images
            if iteration == 0:
                logged = self.module.trainer.callback_metrics
                self.first_losses["lit_gans"] = {name: float(logged[f"loss/{name}"]) for name in losses}

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        on_cuda = self.device.type == "cuda"
        if on_cuda:
            before = torch.cuda.memory_allocated(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        start = now(self.device)
        yield
        self.seconds[name].append(now(self.device) - start)
        if on_cuda:
            allocated = torch.cuda.max_memory_allocated(self.device) - before
            self.memory[name] = max(allocated, self.memory.get(name, 0))

    def largest_weight_difference(self) -> float:
        """Returns the largest difference of the weights and buffers of `bare` and `lit_gans`, averages included."""
        ours, average = self.module, self.module.averaged_generator
        assert average is not None, "EMA has set it"
        theirs = (self.bare.generator, self.bare.discriminator, self.bare.average)
        pairs = zip(
            _tensors(theirs), _tensors((ours.generator, ours.get_submodule("discriminator"), average)), strict=True
        )
        return max(float((one - other).abs().max()) for one, other in pairs)


def _tensors(networks: Iterable[nn.Module]) -> Iterator[Tensor]:
    return chain.from_iterable(network.state_dict().values() for network in networks)


def run(
    sizes: dict[str, int],
    batch_size: int,
    num_iterations: int,
    precision: str,
    compile: bool,
    log_every_n_steps: int,
    seed: int,
    device: torch.device,
) -> Race:
    """Runs `num_iterations` steps of each of the three loops, from the same weights, and returns the timings."""
    tutorial = DCGAN(**sizes, channels_last=False, seed=seed)
    bare, module = (DCGAN(**sizes, channels_last=True, compile=compile, seed=seed) for _ in range(2))
    for by_hand in (tutorial, bare):
        by_hand.to(device)
    generator = torch.Generator().manual_seed(seed)
    shape = (batch_size, module.channels, module.image_size, module.image_size)
    batches = [torch.rand(shape, generator=generator).mul(2).sub(1).to(device) for _ in range(_NUM_BATCHES)]
    bare_loop = BareLoop(bare, bf16=precision == "bf16", ema_decay=_EMA_DECAY)
    race = Race(TutorialLoop(tutorial), bare_loop, module, batches, num_iterations)
    with tempfile.TemporaryDirectory() as folder:
        trainer = quiet_trainer(
            device.type,
            devices=1,
            precision="bf16-mixed" if precision == "bf16" else "32-true",
            max_epochs=1,
            logger=CSVMetrics(folder),
            callbacks=[EMA(_EMA_DECAY), Throughput()],  # measurements and files are not part of a step
            log_every_n_steps=min(log_every_n_steps, num_iterations),  # short runs log too
            default_root_dir=folder,
        )
        trainer.fit(module, race)
    return race
