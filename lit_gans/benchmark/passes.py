"""`lit-gans bench passes`: what several batches in one pass of a network would bring and change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import Any, Literal

import torch
from rich.table import Table
from torch import Tensor, nn

from lit_gans.benchmark.measure import environment, now, refuse_gans
from lit_gans.benchmark.race import batches_for
from lit_gans.benchmark.report import median, quartiles, report, table_of
from lit_gans.benchmark.turns import ratios, take_turns
from lit_gans.common.errors import refuse_below
from lit_gans.common.noise import Noise
from lit_gans.models.sngan import SNGAN
from lit_gans.models.wgan_gp import WGANGP
from lit_gans.networks.spectral import OnePowerIteration, SpectralNorm
from lit_gans.training.losses import wasserstein_critic

_GANS: dict[str, Any] = {"sngan": SNGAN, "wgan_gp": WGANGP}
_ROUNDS = {"full": 7, "smoke": 2}
_SMOKE = {"generator_width": 4, "discriminator_width": 4}
_SMOKE_BATCH = 4
_DEVICE = torch.device("cpu")

Work = Callable[[], Any]


def passes(
    preset: Literal["full", "smoke"] = "full",
    output: str | None = None,
    gans: tuple[str, ...] = ("sngan", "wgan_gp"),
    rounds: int | None = None,
    batch_size: int = 64,
    seed: int = 0,
) -> dict[str, Any]:
    """Times passes over several batches at once beside separate ones, in turns, with residual networks at 32x32.

    `generator`: the generated images of all discriminator steps of an iteration, during which the generator does not
    change. `discriminator`: scores of real and generated images, with the backward pass of their Wasserstein loss;
    weights with spectral norm iterate once, as in a training step. Differences are the largest of the images, and of
    the gradients, relative to the largest value. Returns and prints seconds and ratios.

    Args:
        preset: `smoke` has narrow networks and finishes in seconds; its times are meaningless.
        output: optional JSON file to write.
        gans: GANs whose networks to time.
        rounds: number of interleaved rounds; null uses the preset's number.
        batch_size: number of images per discriminator step.
        seed: seed of weights, images and latents.
    """
    rounds = _ROUNDS[preset] if rounds is None else rounds
    refuse_below(1, rounds=rounds, batch_size=batch_size)
    refuse_gans(gans, _GANS)
    smoke = preset == "smoke"
    batch_size = min(batch_size, _SMOKE_BATCH) if smoke else batch_size
    found = {}
    for name in gans:
        module = _GANS[name](image_size=32, seed=seed, **(_SMOKE if smoke else {}))
        real = batches_for(module, batch_size, seed, _DEVICE)[0].contiguous(memory_format=torch.channels_last)
        found[name] = {
            "generator": _measured(module, _generator_works(module, batch_size), rounds),
            "discriminator": _measured(module, _discriminator_works(module, real[: 2 * batch_size]), rounds),
        }
    result: dict[str, Any] = {
        "benchmark": "passes",
        "preset": preset,
        "rounds": rounds,
        "batch_size": batch_size,
        "seed": seed,
    }
    result |= {**environment(_DEVICE), "gans": found}
    note = f"on {result['device_name']}, {result['threads']} threads, torch {result['torch']}"
    return report(result, [_table(result)], [note], output)


def _generator_works(module: Any, batch_size: int) -> dict[str, Work]:
    noise = Noise(torch.Generator(), (module.seed, "passes"))
    latents = noise.normal("latents", batch_size * module.n_critic, module.latent_dim)

    @torch.no_grad()
    def generate(num: int) -> Tensor:
        return torch.cat([module.generator(some) for some in latents.chunk(num)])

    return {"separate": lambda: generate(module.n_critic), "at_once": lambda: generate(1)}


def _discriminator_works(module: Any, images: Tensor) -> dict[str, Work]:
    layers = [layer for layer in module.modules() if isinstance(layer, SpectralNorm)]

    def differentiate(num: int) -> Tensor:
        module.discriminator.zero_grad()
        with OnePowerIteration(layers):
            scores = torch.cat([module.discriminator(some) for some in images.chunk(num)])
            wasserstein_critic(*scores.chunk(2)).backward()  # type: ignore[no-untyped-call]
        return torch.cat([weight.grad.flatten() for weight in module.discriminator.parameters()])

    return {"separate": lambda: differentiate(2), "at_once": lambda: differentiate(1)}


def _measured(module: Any, works: dict[str, Work], rounds: int) -> dict[str, Any]:
    difference = _difference(module, works)  # also a warm-up
    seconds = take_turns({name: partial(_seconds, work) for name, work in works.items()}, rounds)
    return {
        "seconds": {name: min(times) for name, times in seconds.items()},
        "speedup": ratios(seconds["separate"], seconds["at_once"]),
        "difference": difference,
    }


def _seconds(work: Work) -> float:
    begun = now(_DEVICE)
    work()
    return now(_DEVICE) - begun


def _difference(module: nn.Module, works: dict[str, Work]) -> float:
    """Returns the difference of two results from the same state of a module, relative to the largest value."""
    state, results = deepcopy(module.state_dict()), []
    for work in works.values():
        results.append(work())
        module.load_state_dict(state)  # a pass moves the statistics of batch norm and the vectors of spectral norm
    separate, at_once = results
    return float((separate - at_once).abs().max() / separate.abs().max())


def _rows(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, found in result["gans"].items():
        for part, row in found.items():
            yield f"{name}, {part}", row


def _table(result: dict[str, Any]) -> Table:
    title = f"several batches of {result['batch_size']} in one pass, residual networks at 32x32"
    table = table_of(title, "", "s, separate : at once", "speedup", "quartiles", "difference")
    for name, row in _rows(result):
        seconds = " : ".join(f"{row['seconds'][kind]:.3g}" for kind in ("separate", "at_once"))
        speedup = median(row["speedup"], ".2f"), quartiles(row["speedup"], ".2f")
        table.add_row(name, seconds, *speedup, f"{row['difference']:.1e}")
    return table
