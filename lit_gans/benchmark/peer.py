"""`lit-gans bench peer`: SNGAN's and WGAN-GP's training step, compared with that of torch-mimicry."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from rich.table import Table
from torch import Tensor

from lit_gans.benchmark.layers import KINDS, operator_times
from lit_gans.benchmark.loops import BareLoop
from lit_gans.benchmark.measure import (
    count_flops,
    environment,
    matrix_product_rate,
    refuse_gans,
    spread,
)
from lit_gans.benchmark.peer_networks import PeerDiscriminator, PeerGenerator
from lit_gans.benchmark.race import EMA_DECAY, Race, batches_for, fit
from lit_gans.benchmark.report import median, quartiles, report, table_of
from lit_gans.benchmark.turns import ratios
from lit_gans.benchmark.tutorials import tutorial_of
from lit_gans.common.errors import refuse_below
from lit_gans.models.sngan import SNGAN
from lit_gans.models.wgan_gp import WGANGP

_GANS: dict[str, Any] = {"sngan": SNGAN, "wgan_gp": WGANGP}
_LOOPS = ("peer", "lit_gans")
_STEPS = {"full": 10, "smoke": 1}
_SMOKE_BATCH = 2
_WIDTHS = {"full": (256, 128), "smoke": (4, 4)}  # of generator and discriminator
_LEARNING_RATE, _BETAS = 2e-4, (0.0, 0.9)
_MATRIX_SIZE = {"full": 2048, "smoke": 128}


class PeerLoop:
    """One generator iteration of torch-mimicry, from its description: n_critic steps of the discriminator, then one of
    the generator with as many images.

    Torch's default layout and optimizer, nothing frozen, generated images detached after they got a graph; loss and
    mean probabilities are fetched in every step.

    Args:
        module: has the sizes, and the kind of losses.
        generator_width, discriminator_width: number of channels.
    """

    def __init__(self, module: SNGAN | WGANGP, generator_width: int, discriminator_width: int) -> None:
        self.n_critic, self.latent_dim, self.tutorial = module.n_critic, module.latent_dim, tutorial_of(module)
        self.generator = PeerGenerator(module.latent_dim, module.channels, generator_width)
        discriminator = PeerDiscriminator(module.channels, discriminator_width, isinstance(module, SNGAN))
        self.discriminators = [discriminator]
        self._scores: list[Tensor] = []
        discriminator.register_forward_hook(lambda _, __, scores: self._scores.append(scores))
        self.discriminator_optimizer, self.generator_optimizer = (
            torch.optim.Adam(network.parameters(), lr=_LEARNING_RATE, betas=_BETAS)
            for network in (discriminator, self.generator)
        )

    def step(self, real: Float[Tensor, "n c s s"]) -> dict[str, float | Tensor]:
        """Updates both networks and returns the losses."""
        for images in real.chunk(self.n_critic):
            self.discriminator_optimizer.zero_grad()
            fake = self.generator(torch.randn(len(images), self.latent_dim)).detach()
            self._scores.clear()
            (loss,) = self.tutorial.terms(self.discriminators, images, fake)
            loss.backward()
            self.discriminator_optimizer.step()
            fetched = [loss.item(), *(score.sigmoid().mean().item() for score in self._scores[:2])]
        self.generator_optimizer.zero_grad()
        fake = self.generator(torch.randn(len(images), self.latent_dim))
        generator_loss = self.tutorial.generator(self.discriminators, fake)
        generator_loss.backward()
        self.generator_optimizer.step()
        return {"discriminator": fetched[0], "generator": generator_loss.item()}


def peer(
    preset: Literal["full", "smoke"] = "full",
    output: str | None = None,
    gans: tuple[str, ...] = ("sngan", "wgan_gp"),
    steps: int | None = None,
    warmup: int = 1,
    batch_size: int = 64,
    compile: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Times an iteration of torch-mimicry's loop and of ours in turns, on the CPU: residual networks at 32x32, 5 steps
    of the discriminator and one of the generator.

    The peer's loop is written from its description, with the same layers and as many passes. Ratios are taken within an
    iteration, by the clock and in time of this thread on a processor, which other processes disturb less. Operations
    are counted, and compared with the rate of a product of matrices. After the race, one more iteration of each loop
    tells where the time goes, by kinds of operators and by layers. Returns and prints seconds.

    Args:
        preset: `smoke` has narrow networks and finishes in seconds; its times are meaningless.
        output: optional JSON file to write.
        gans: GANs to time.
        steps: number of timed iterations; null uses the preset's number.
        warmup: number of warm-up iterations.
        batch_size: number of images per step.
        compile: whether to compile our networks; then our step without Lightning takes turns too, uncompiled.
        seed: seed of weights, images and latents.
    """
    steps = _STEPS[preset] if steps is None else steps
    refuse_below(1, steps=steps, warmup=warmup, batch_size=batch_size)
    refuse_gans(gans, _GANS)
    batch_size = min(batch_size, _SMOKE_BATCH) if preset == "smoke" else batch_size
    widths, device = _WIDTHS[preset], torch.device("cpu")
    rate = matrix_product_rate(device, torch.float32, _MATRIX_SIZE[preset])
    found = {name: _race(_GANS[name], widths, steps, warmup, batch_size, rate, compile, seed) for name in gans}
    result = {
        "benchmark": "peer",
        **{"preset": preset, "steps": steps, "warmup": warmup, "batch_size": batch_size, "compile": compile},
        **{"seed": seed, "generator_width": widths[0], "discriminator_width": widths[1], "matrix_product": rate},
        **environment(device),
        "gans": found,
    }
    layers = [_layers_table(result, name, loop) for name in gans for loop in _LOOPS]
    return report(result, [_table(result), _kinds_table(result), *layers], _notes(result), output)


def _module(kind: Any, widths: tuple[int, int], seed: int, compile: bool = False) -> Any:
    sizes = {"image_size": 32, "generator_width": widths[0], "discriminator_width": widths[1]}
    return kind(**sizes, generator_batch_multiple=1, seed=seed, compile=compile)


def _race(
    kind: Any, widths: tuple[int, int], steps: int, warmup: int, batch_size: int, rate: float, compile: bool, seed: int
) -> dict[str, Any]:
    module = _module(kind, widths, seed, compile)
    loop = PeerLoop(module, *widths)
    batches = batches_for(module, batch_size, seed, torch.device("cpu"))
    uncompiled = {"uncompiled": BareLoop(_module(kind, widths, seed), False, EMA_DECAY)} if compile else {}
    race = Race({"peer": loop, **uncompiled}, module, batches, warmup + steps + 1)
    fit(race, "32-true", 10)
    timed = {
        "seconds": {name: times[warmup : warmup + steps] for name, times in race.seconds.items()},
        "processor_seconds": {name: times[warmup : warmup + steps] for name, times in race.processor_seconds.items()},
    }
    # our step without Lightning, which trains the same weights, for what is counted beside the race
    loops: dict[str, Any] = {"peer": loop, "lit_gans": BareLoop(_module(kind, widths, seed), False, 0.0)}
    work = {name: _work(each, batches[0], batch_size) for name, each in loops.items()}
    return {
        **{clock: {name: spread(times) for name, times in by_loop.items()} for clock, by_loop in timed.items()},
        "speedup": ratios(timed["seconds"]["peer"], timed["seconds"]["lit_gans"]),
        "compiled_speedup": ratios(timed["seconds"]["uncompiled"], timed["seconds"]["lit_gans"]) if compile else None,
        "processor_speedup": ratios(timed["processor_seconds"]["peer"], timed["processor_seconds"]["lit_gans"]),
        "work": work,
        "share_of_matrix_product": {
            name: work[name]["flops"] / spread(timed["seconds"][name])["median"] / rate for name in work
        },
        "operators": {name: operator_times(partial(each.step, batches[0])) for name, each in loops.items()},
    }


def _work(loop: PeerLoop | BareLoop, images: Tensor, batch_size: int) -> dict[str, Any]:
    """Returns the parameters, forward passes and operations of an iteration; both are counted on fewer images."""
    passes: Counter[str] = Counter()
    networks = dict(zip(("generator", "discriminator"), (loop.generator, *loop.discriminators), strict=True))
    hooks = [
        network.register_forward_hook(lambda *_, name=name: passes.update([name])) for name, network in networks.items()
    ]
    flops = count_flops(lambda: loop.step(images[::batch_size]))
    for hook in hooks:
        hook.remove()
    return {
        "flops": flops * batch_size,
        "passes": dict(passes),
        "parameters": {name: sum(map(torch.numel, network.parameters())) for name, network in networks.items()},
    }


def _notes(result: dict[str, Any]) -> list[str]:
    threads, rate = result["threads"], result["matrix_product"] / 1e9
    lines = [f"on {result['device_name']}, {threads} threads, matrix product {rate:.3g} GFLOP/s"]
    for name, found in result["gans"].items() if result["compile"] else ():
        speedup = found["compiled_speedup"]
        lines.append(f"{name}: compiled {median(speedup, '.2f')} times as fast ({quartiles(speedup, '.2f')})")
    return lines


def _table(result: dict[str, Any]) -> Table:
    title = f"iterations at 32x32, batch {result['batch_size']}, 5 discriminator steps"
    columns = ("s, peer : ours", "speedup", "quartiles", "of processor time", "GFLOP", "% of matrix product's")
    table = table_of(title, "", *columns)
    for name, found in result["gans"].items():
        seconds, share = found["seconds"], found["share_of_matrix_product"]
        table.add_row(
            name,
            " : ".join(median(seconds[loop], ".3g") for loop in _LOOPS),
            *(median(found["speedup"], ".2f"), quartiles(found["speedup"], ".2f")),
            median(found["processor_speedup"], ".2f"),
            " : ".join(f"{1e-9 * found['work'][loop]['flops']:.4g}" for loop in _LOOPS),
            " : ".join(f"{100 * share[loop]:.0f}" for loop in _LOOPS),
        )
    return table


def _kinds_table(result: dict[str, Any]) -> Table:
    table = table_of("s of an iteration by operators, peer : ours", "", *KINDS)
    for name, found in result["gans"].items():
        times = [found["operators"][loop]["by_kind"] for loop in _LOOPS]
        table.add_row(name, *(" : ".join(f"{each[kind]:.3g}" for each in times) for kind in KINDS))
    return table


def _layers_table(result: dict[str, Any], name: str, loop: str) -> Table:
    table = table_of(f"{name}, {loop}: the slowest layers of an iteration", "", "calls", "s", "GFLOP/s")
    layers = result["gans"][name]["operators"][loop]["by_layer"]
    for label, row in layers.items():
        table.add_row(label, str(row["calls"]), f"{row['seconds']:.3g}", f"{1e-9 * row['flops'] / row['seconds']:.3g}")
    return table
