"""What the study measures: trainings, as lists of overrides, and a few cells that are none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lit_gans.config.registry import gans
from lit_gans.training.translator import Translator

# networks of the studies where an experiment has them; other GANs have their paper's
_EXPERIMENTS = {"dcgan": "dcgan_scaling_study", "sngan": "sngan_scaling_study", "wgan_gp": "wgan_gp_scaling_study"}
_ON_CPU = {"r3gan": "r3gan_digits"}  # its paper's networks take 21 s for a step of 8 images of 64x64 on two cores
_OPTIMIZED = ("dcgan", "sngan", "wgan_gp", "gan", "pix2pix")
_STAGES = (0, 1, 2, 3)
_ALONE = "one process has nobody to communicate with."


@dataclass(frozen=True)
class Sizes:
    """Sizes of the measurements; those of the studies by default.

    Args:
        batch_sizes: batch sizes of `batch`, in images.
        image_size: height and width of the images in `batch`, `scaling`, `overlap` and `deepspeed`, in pixels.
        batch_size: batch size per process of all parts but `batch` and `dual`, in images.
        small_image_size: height and width of the images in `optimizations`, `lightweight` and `projection`, in pixels.
        width: width of the networks, in channels; null leaves that of the study's networks.
        steps: largest number of timed steps of a cell.
        fixed_steps: number of steps where losses are compared after the same images.
        warmup: number of steps before the timed ones.
        seconds: seconds after which a cell ends, once it has timed two steps.
        step_limit: seconds that one step may take on a CPU; longer ones are listed instead of measured.
        zero_batch_sizes: batch sizes per process of the ZeRO stages in `optimizations`, beside `batch_size`, in images.
        seeds: seeds of the trainings in `dual`.
        dual_gans: names of the GANs in `dual`.
        dual_batch_sizes: batch sizes in `dual`, in images.
        dual_data: names of the data in `dual`: `digits`, `avatars`, `stacked_digits`.
        dual_images: number of real images that each training in `dual` sees, those of all critic steps.
        dual_seconds: seconds that each training in `dual` takes at least; null for none.
        dual_samples: number of generated images per evaluation in `dual`.
        evaluations: number of evaluations on the way to `dual_images`, and as many to `dual_seconds`.
        compiles: whether `optimizations` compiles networks, which takes a minute on a CPU.
    """

    batch_sizes: Sequence[int] = (8, 16, 32, 64, 128, 256, 512)
    image_size: int = 64
    batch_size: int = 64
    small_image_size: int = 64
    width: int | None = None
    steps: int = 50
    fixed_steps: int = 100
    warmup: int = 3
    seconds: float = 5.0
    step_limit: float = 30.0
    zero_batch_sizes: Sequence[int] = (1, 4, 8)
    seeds: Sequence[int] = (0, 1, 2)
    dual_gans: Sequence[str] = ("dcgan", "d2gan", "d3gan")
    dual_batch_sizes: Sequence[int] = (64, 256, 512)
    dual_data: Sequence[str] = ("digits",)
    dual_images: int = 500_000
    dual_seconds: float | None = None
    dual_samples: int = 5000
    evaluations: int = 10
    compiles: bool = True


PRESETS: dict[str, dict[str, Any]] = {
    "full": {},
    "cpu": {  # two hours on two cores
        **{"batch_size": 8, "small_image_size": 32, "fixed_steps": 10, "warmup": 1, "seconds": 2.0},
        **{"step_limit": 15.0, "dual_images": 15_000, "dual_samples": 500, "evaluations": 5},
        "dual_batch_sizes": [64],  # so few images train larger batches hardly at all
    },
    "smoke": {  # its times mean nothing
        **{"batch_sizes": [2, 4], "image_size": 16, "batch_size": 2, "small_image_size": 16, "width": 4, "steps": 2},
        **{"fixed_steps": 2, "warmup": 1, "seconds": 0.1, "zero_batch_sizes": [1], "dual_batch_sizes": [64]},
        **{"dual_images": 128, "dual_samples": 64, "evaluations": 1, "compiles": False},
    },
}


@dataclass(frozen=True)
class Machine:
    """What cells depend on besides their sizes: the device, all devices, numbers of processes, cores, and GANs."""

    device: str
    devices: Sequence[str]
    ranks: Sequence[int]
    cores: int
    gans: Sequence[str]


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Args:
        part: name of the part.
        name: readable name, unique in the part.
        labels: what the tables call it.
        overrides: those of `lit-gans train`, without data.
        settings: what else `measure` needs.
        kind: name of the function in `measure`.
        ranks: number of processes that measure the cell together, each with one device.
        once: whether the cell is not repeated, because its seeds are its repeats.
        reason: why the cell cannot be measured here, if that is known beforehand.
    """

    part: str
    name: str
    labels: Mapping[str, Any]
    overrides: Sequence[str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "timed"
    ranks: int = 1
    once: bool = False
    reason: str | None = None


def _model(gan: str, image_size: int, width: int | None, device: str = "cuda") -> list[str]:
    """Returns the overrides of a GAN: the studies' networks where an experiment has them."""
    name = (_EXPERIMENTS | _ON_CPU if device == "cpu" else _EXPERIMENTS).get(gan)
    found = [f"experiment={name}" if name else f"model={gan}", f"data.image_size={image_size}", "data.channels=3"]
    if gan == "pix2pix" and image_size < 64:
        found.append("model.patch_depth=1")  # three layers leave no patch of so small an image
    return [*found, *_widths(width)]


def _widths(width: int | None) -> list[str]:
    return [] if width is None else [f"model.generator_width={width}", f"model.discriminator_width={width}"]


def _timing(sizes: Sizes) -> dict[str, Any]:
    return {name: getattr(sizes, name) for name in ("warmup", "steps", "seconds", "step_limit")}


def batch(sizes: Sizes, machine: Machine) -> Iterator[Cell]:
    """Yields each GAN with batches of several sizes on each device."""
    for device in machine.devices:
        for gan in machine.gans:
            for size in sizes.batch_sizes:
                labels = {"gan": gan, "batch_size": size, "image_size": sizes.image_size, "device": device}
                overrides = _model(gan, sizes.image_size, sizes.width, device)
                yield Cell("batch", f"{gan}, batch {size}, {device}", labels, overrides, _timing(sizes))


def scaling(sizes: Sizes, machine: Machine) -> Iterator[Cell]:
    """Yields each GAN on 1, 2, 4, ... processes with the same batch per process, and with the same batch in all."""
    for gan in machine.gans:
        overrides = [*_model(gan, sizes.image_size, sizes.width, machine.device), "strategy=ddp"]
        for kind in ("weak", "strong"):
            for ranks in machine.ranks:
                each = sizes.batch_size if kind == "weak" else sizes.batch_size // ranks
                labels = {"gan": gan, "kind": kind, "batch_size": each, "device": machine.device}
                labels["image_size"] = sizes.image_size
                rest = sizes.batch_size % ranks and kind == "strong"
                reason = f"a batch of {sizes.batch_size} cannot be split over {ranks} processes." if rest else None
                name = f"{gan}, {kind}, {ranks}"
                yield Cell("scaling", name, labels, overrides, _timing(sizes), ranks=ranks, reason=reason)


def overlap(sizes: Sizes, machine: Machine) -> Iterator[Cell]:
    """Yields each GAN on files and 1, 2, 4, ... processes; computation, communication and loading are recorded."""
    for gan in machine.gans:
        reason = "it needs pairs, and the folder of this part has single pictures." if gan == "pix2pix" else None
        overrides = _model(gan, sizes.image_size, sizes.width, machine.device)
        settings = _timing(sizes) | {"step_limit": None}
        for ranks in machine.ranks:
            labels = {"gan": gan, "batch_size": sizes.batch_size, "device": machine.device}
            labels["image_size"] = sizes.image_size
            yield Cell("overlap", f"{gan}, {ranks}", labels, overrides, settings, "overlap", ranks, reason=reason)


def variants(sizes: Sizes, machine: Machine) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """Returns the overrides and other settings of each optimization, by its name."""
    ddp, several = ["strategy=ddp"], {"several": True}
    found: dict[str, tuple[list[str], dict[str, Any]]] = {"baseline": (ddp, {}), "one process": ([], {"ranks": 1})}
    for size in (1, 5, 100):
        found[f"bucket {size} MiB"] = ([*ddp, f"trainer.strategy.bucket_cap_mb={size}"], several)
    for name in ("fp16", "bf16", "powersgd"):
        found[f"compression {name}"] = ([*ddp, f"trainer.strategy.gradient_compression={name}"], several)
    found["hierarchical"] = ([*ddp, "trainer.strategy.hierarchical=true"], several)
    found["precision bf16"] = ([*ddp, "precision=bf16"], {})
    found["precision fp16"] = ([*ddp, "precision=fp16"], {})
    found["accumulation 4"] = ([*ddp, "model.accumulate_gradients=4"], {"split": 4})
    found["clipping 2"] = ([*ddp, "model.clip_gradients=2.0"], {})
    compiles = {} if sizes.compiles else {"reason": "this preset does not compile, which takes a minute."}
    found["compile"] = ([*ddp, "model.compile=true"], compiles)
    found["without channels_last"] = ([*ddp, "model.channels_last=false"], {})
    found["bound to cores"] = (ddp, several | {"bind": True})
    found["all cores in each"] = (ddp, several | {"threads": machine.cores})
    found["fsdp"] = (["strategy=fsdp"], several)
    stages = {f"ZeRO {stage}": ["strategy=deepspeed", f"trainer.strategy.stage={stage}"] for stage in _STAGES}
    found |= {name: (overrides, {}) for name, overrides in stages.items()}
    found["ZeRO 2, offload"] = ([*stages["ZeRO 2"], "trainer.strategy.offload_optimizer=true"], {})
    for size in sizes.zero_batch_sizes:
        if size != sizes.batch_size:
            found[f"batch {size}"] = (ddp, {"batch_size": size})
            found |= {f"batch {size}, {name}": (overrides, {"batch_size": size}) for name, overrides in stages.items()}
    return found


def optimizations(sizes: Sizes, machine: Machine) -> Iterator[Cell]:
    """Yields the studies' GANs with one setting changed at a time, which see the same images."""
    most = max(machine.ranks)
    units = 8 * math.ceil(sizes.fixed_steps / 8)  # steps of the baseline, which four microbatches divide
    for gan in (gan for gan in _OPTIMIZED if gan in machine.gans):
        for name, (overrides, changed) in variants(sizes, machine).items():
            ranks = changed.get("ranks", most)
            each = changed.get("batch_size", sizes.batch_size)
            labels = {"gan": gan, "variant": name, "batch_size": each, "device": machine.device}
            labels["image_size"] = sizes.small_image_size
            steps = units * most // (changed.get("split", 1) * ranks) - 1
            settings = {"warmup": 1, "steps": steps} | {k: changed[k] for k in ("threads", "bind") if k in changed}
            reason = _ALONE if ranks == 1 and changed.get("several") else changed.get("reason")
            model = _model(gan, sizes.small_image_size, sizes.width)
            yield Cell(
                "optimizations", f"{gan}, {name}", labels, [*model, *overrides], settings, ranks=ranks, reason=reason
            )


def deepspeed(sizes: Sizes, machine: Machine) -> Iterator[Cell]:
    """Yields DCGAN with the tutorial's plain loop, with `ddp`, and with an engine for each network."""
    # the networks of experiment=dcgan_deepspeed
    model = ["model=dcgan", f"data.image_size={sizes.image_size}", "data.channels=3", "model.latent_dim=100"]
    model += _widths(sizes.width or 64)
    stages = {
        f"engines{f', ZeRO {n}' if n else ''}": ["strategy=deepspeed", f"trainer.strategy.stage={n}"] for n in range(3)
    }
    for loop, overrides in {"plain loop": ["strategy=auto"], "ddp": ["strategy=ddp"], **stages}.items():
        for ranks in machine.ranks:
            labels = {"loop": loop, "batch_size": sizes.batch_size, "device": machine.device}
            labels["image_size"] = sizes.image_size
            kind = "plain_loop" if loop == "plain loop" else "timed"
            alone = kind == "plain_loop" and ranks > 1
            reason = "the plain loop knows nothing of other processes." if alone else None
            both = [*model, *overrides]
            yield Cell("deepspeed", f"{loop}, {ranks}", labels, both, _timing(sizes), kind, ranks, reason=reason)


_DATA = {  # experiment, and further overrides
    "digits": ("{gan}_digits", []),
    "avatars": ("{gan}_avatars", ["~callbacks.judge", "metrics.scores.prdc=null"]),
    "stacked_digits": ("{gan}_digits", ["data=stacked_digits", "metrics=modes"]),
}


def dual(sizes: Sizes, machine: Machine) -> Iterator[Cell]:
    """Yields trainings of several GANs on the same images at several batch sizes and with several seeds."""
    limits = {"images": sizes.dual_images, "limit_seconds": sizes.dual_seconds, "evaluations": sizes.evaluations}
    for data in sizes.dual_data:
        experiment, further = _DATA[data]
        for size in sizes.dual_batch_sizes:
            for gan in sizes.dual_gans:
                for seed in sizes.seeds:
                    labels = {"gan": gan, "data": data, "seed": seed, "batch_size": size, "device": machine.device}
                    labels |= limits | {"samples": sizes.dual_samples}
                    settings = {"film": (size, seed) == (sizes.dual_batch_sizes[0], sizes.seeds[0])}
                    overrides = [f"experiment={experiment.format(gan=gan)}", f"seed={seed}", *_widths(sizes.width)]
                    overrides += further
                    name = f"{gan} on {data}, batch {size}, seed {seed}"
                    reason = "it has no FID, because it translates images." if translates(gan) else None
                    yield Cell("dual", name, labels, overrides, settings, "curve", once=True, reason=reason)


def translates(gan: str) -> bool:
    """Returns whether a GAN translates images, instead of generating them from noise."""
    return issubclass(gans()[gan], Translator)


def lightweight(sizes: Sizes, machine: Machine) -> Iterator[Cell]:
    """Yields DCGAN with each block at each width, for speed and for quality after the same seconds."""
    for block in ("plain", "grouped", "separable", "inverted_residual"):
        for multiplier in (1.0, 0.5):
            width = max(1, int((sizes.width or 64) * multiplier))
            overrides = [*_model("dcgan", sizes.small_image_size, width), f"model.block={block}"]
            labels = {"block": block, "multiplier": multiplier, "batch_size": sizes.batch_size}
            labels |= {"device": machine.device, "fid_seconds": max(1.0, 5 * sizes.seconds)}
            labels |= {"image_size": sizes.small_image_size, "samples": max(500, sizes.dual_samples)}
            name = f"{block}, width x {multiplier:g}"
            yield Cell("lightweight", name, labels, overrides, _timing(sizes), "block")


def projection(sizes: Sizes, machine: Machine) -> Iterator[Cell]:
    """Yields DCGAN on several processes: the network between them, computation alone, and the real step."""
    overrides = _model("dcgan", sizes.small_image_size, sizes.width or 32)
    for ranks in (ranks for ranks in machine.ranks if ranks > 1):
        labels = {"batch_size": sizes.batch_size, "device": machine.device, "image_size": sizes.small_image_size}
        yield Cell("projection", f"dcgan, {ranks} processes", labels, overrides, _timing(sizes), "link", ranks)
