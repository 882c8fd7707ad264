"""`lit-gans bench host`: time of the host in a training step whose networks are so small that computing vanishes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from rich.table import Table

from lit_gans.benchmark.calls import CallCounter, CountedFirst
from lit_gans.benchmark.floor import EmptyRun
from lit_gans.benchmark.loops import BareLoop, Loop, TutorialLoop
from lit_gans.benchmark.measure import environment, interval_of_median, refuse_gans, spread
from lit_gans.benchmark.race import EMA_DECAY, Race, batches_for, fit, largest_weight_difference
from lit_gans.benchmark.report import median, quartiles, report, table_of
from lit_gans.benchmark.sampling import KINDS, Sampler
from lit_gans.common.errors import refuse_below
from lit_gans.models.d2gan import D2GAN
from lit_gans.models.dcgan import DCGAN
from lit_gans.models.sngan import SNGAN
from lit_gans.models.wgan_gp import WGANGP
from lit_gans.training.adversarial import AdversarialModule
from lit_gans.training.optim import Adam

_GANS: dict[str, type[AdversarialModule]] = {"dcgan": DCGAN, "sngan": SNGAN, "wgan_gp": WGANGP, "d2gan": D2GAN}
_TINY: dict[str, Any] = {
    "image_size": 16,
    "channels": 1,
    "latent_dim": 4,
    "generator_width": 2,
    "discriminator_width": 2,
}
_BATCH_SIZE = 2
_STEPS = {"full": 200, "smoke": 3}
_COUNTED = 3  # iterations whose calls are counted, of which some do not log
_CLOCKS = ("seconds", "processor_seconds")


def host(
    preset: Literal["full", "smoke"] = "full",
    output: str | None = None,
    gans: tuple[str, ...] = ("dcgan", "sngan", "wgan_gp", "d2gan"),
    steps: int | None = None,
    warmup: int = 20,
    log_every_n_steps: int = 10,
    seed: int = 0,
) -> dict[str, Any]:
    """Times three loops of tiny GANs in turns, on one thread of the CPU: what a step costs beside its computing.

    `tutorial`, `bare` and `lit_gans` are those of `bench step`; `empty`, timed after them, is a module without a step
    in a `Trainer`, in turns with the bare loop: the least that Lightning's own loop costs. Differences are taken within
    an iteration, by the clock and in time of this thread on a processor, which other processes disturb less. Their
    quartiles tell how much iterations differ, the confidence interval how well the median is known: more steps narrow
    only the latter. After the timed iterations, the calls of three are counted, and as many are sampled, to tell where
    the time of `lit_gans` goes. Returns and prints milliseconds and calls.

    Args:
        preset: `smoke` finishes in seconds; its times are meaningless.
        output: optional JSON file to write.
        gans: GANs to time.
        steps: number of timed, and of sampled, iterations; null uses the preset's number.
        warmup: number of warm-up iterations.
        log_every_n_steps: number of iterations between two rows of the log.
        seed: seed of weights, images and latents.
    """
    steps = _STEPS[preset] if steps is None else steps
    refuse_below(1, steps=steps, warmup=warmup, log_every_n_steps=log_every_n_steps)
    refuse_gans(gans, _GANS)
    with _one_thread():
        found = {name: _race(name, steps, warmup, log_every_n_steps, seed) for name in gans}
        result = {
            "benchmark": "host",
            **{"preset": preset, "steps": steps, "warmup": warmup, "log_every_n_steps": log_every_n_steps},
            **{"seed": seed, "batch_size": _BATCH_SIZE, **_TINY, **environment(torch.device("cpu"))},
            "gans": found,
        }
    notes = [f"on {result['device_name']}, one thread, torch {result['torch']}, Lightning {result['lightning']}"]
    tables = [_table(result, clock) for clock in _CLOCKS] + [_calls_table(result), _profile_table(result)]
    return report(result, tables, notes, output)


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _module(name: str, seed: int, **settings: Any) -> AdversarialModule:
    constant = Adam(2e-4, (0.0, 0.9))  # the loops by hand have no schedules
    optimizers: dict[str, Any] = {"generator_optimizer": constant, "discriminator_optimizer": constant}
    return _GANS[name](**_TINY, **optimizers, seed=seed, **settings)


def _race(name: str, steps: int, warmup: int, log_every_n_steps: int, seed: int) -> dict[str, Any]:
    num = warmup + steps + _COUNTED + steps + 1  # the last step of `lit_gans` is not timed
    bare, module = _module(name, seed), _module(name, seed)
    by_hand = BareLoop(bare, bf16=False, ema_decay=EMA_DECAY)
    loops: dict[str, Loop] = {"tutorial": TutorialLoop(_module(name, seed, channels_last=False)), "bare": by_hand}
    sampler = Sampler()
    counted_first = CountedFirst(_COUNTED, sampler)
    batches = batches_for(module, _BATCH_SIZE, seed, torch.device("cpu"))
    race = Race(loops, module, batches, num, counted_first, warmup + steps)
    fit(race, "32-true", log_every_n_steps)
    difference = largest_weight_difference(by_hand, module)
    empty = EmptyRun(batches[0], warmup + steps, partial(by_hand.step, batches[0]))
    counters = {"bare": CallCounter(), "lit_gans": counted_first.counter, "empty": empty.counter}
    for _ in range(_COUNTED):
        with counters["bare"]:
            by_hand.step(batches[0])
    times = {
        "seconds": {**race.seconds, "empty": empty.seconds},
        "processor_seconds": {**race.processor_seconds, "empty": empty.processor_seconds},
    }
    timed = {
        clock: {loop: each[warmup : warmup + steps] for loop, each in by_loop.items()}
        for clock, by_loop in times.items()
    }
    return {
        **{clock: {loop: spread(each) for loop, each in by_loop.items()} for clock, by_loop in timed.items()},
        **{f"over_bare_{clock}": _over_bare(by_loop) for clock, by_loop in timed.items()},
        "calls": {loop: counter.fewest() for loop, counter in counters.items()},
        "shares": sampler.shares(),
        "samples": sampler.counts.total(),
        "largest_weight_difference": difference,
    }


def _over_bare(times: dict[str, list[float]]) -> dict[str, float]:
    """Returns the spread of the differences within iterations, and a 95 % confidence interval of their median."""
    differences = [ours - bare for ours, bare in zip(times["lit_gans"], times["bare"], strict=True)]
    low, high = interval_of_median(differences)
    return {**spread(differences), "median_low": low, "median_high": high}


# ---- the report


def _table(result: dict[str, Any], clock: str) -> Table:
    kind = "by the clock" if clock == "seconds" else "of the thread on a processor"
    names = ("tutorial", "bare", "lit_gans", "empty", "lit_gans - bare")
    table = table_of(f"ms of an iteration, tiny networks, {kind}", "", *names, "95 % of its median")
    for name, found in result["gans"].items():
        over = found[f"over_bare_{clock}"]
        columns = [found[clock][loop] for loop in names[:-1]] + [over]
        interval = f"{1000 * over['median_low']:.3f} .. {1000 * over['median_high']:.3f}"
        table.add_row(name, *(median(each, ".3f", 1000) for each in columns), interval)
        table.add_row("  quartiles", *(quartiles(each, ".3f", 1000) for each in columns), style="dim")
    return table


def _calls_table(result: dict[str, Any]) -> Table:
    names = ("bare", "lit_gans", "empty")
    table = table_of("calls of functions in Python and C in an iteration that does not log", "", *names)
    for name, found in result["gans"].items():
        table.add_row(name, *(f"{found['calls'][loop]:,}" for loop in names))
    return table


def _profile_table(result: dict[str, Any]) -> Table:
    table = table_of("ms of an iteration of lit_gans, by what it was doing in a sample", "", *KINDS, "other", "samples")
    for name, found in result["gans"].items():
        typical = 1000 * found["processor_seconds"]["lit_gans"]["median"]
        shares = [f"{typical * share:.3f}" for share in found["shares"].values()]
        table.add_row(name, *shares, str(found["samples"]))
    return table
