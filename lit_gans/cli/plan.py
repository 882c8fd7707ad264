"""`lit-gans plan data.root=FOLDER [minutes=60]`: chooses the settings of a training on one's own pictures.

Examples:
    lit-gans plan data.root=photos minutes=60
    lit-gans plan data.root=photos minutes=600 data.image_size=128
    lit-gans train experiment=photos data.root=photos minutes=60
"""

from __future__ import annotations

import hashlib
import inspect
import math
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from jaxtyping import Int64, UInt8
from torch import Tensor

from lit_gans.callbacks.evaluation import GenerativeMetrics
from lit_gans.callbacks.init_from import InitFrom
from lit_gans.checkpoints.format import FORMAT_KEY, class_path, read_checkpoint, to_plain
from lit_gans.cli import rules
from lit_gans.cli.help import as_typed
from lit_gans.cli.timing import Timing, busy_machine, speed
from lit_gans.cli.train_arguments import (
    experiment_output,
    is_sweep,
    suitable_metrics,
    without_own,
    write_experiment,
)
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput, refuse_not_positive
from lit_gans.common.paths import short_name
from lit_gans.common.process_state import process_state_restored
from lit_gans.common.progress import in_words
from lit_gans.common.quiet import quiet
from lit_gans.common.size import Size, as_size, sides, size_text
from lit_gans.config.build import build, resolve
from lit_gans.config.groups import options
from lit_gans.config.hydra_app import compose
from lit_gans.config.mistakes import refused_is_2
from lit_gans.config.overrides import key_of, value_of
from lit_gans.config.registry import gans
from lit_gans.data.base import ImageData
from lit_gans.data.images import to_uint8
from lit_gans.data.sources.folder import Folder
from lit_gans.data.survey import LOOKED_AT, Survey, survey
from lit_gans.training.callback import callbacks_of
from lit_gans.training.module import AdversarialModule

EXPERIMENT, MODEL = "photos", "dcgan"  # the experiment of a plan, and its model
_NOT_WRITTEN = ("experiment", "resume", "init_from", "minutes", "output")
_TRIAL = 3.0  # seconds of a timing
_OUTSIDE = 0.05  # share of the time for what is no iteration: samples, checkpoints, the start
_JUDGED = 32  # images whose measuring is timed
_FEW = 500  # pictures


def main(arguments: list[str]) -> int:
    """Runs the command with the arguments of a training, and of `plan`; returns the exit code."""
    quiet()
    return refused_is_2(lambda: print(f"next:      {_next(_plan(arguments), arguments)}", flush=True))


def _next(path: Path, arguments: list[str]) -> str:
    """Returns the command that trains as planned; an experiment does not hold the run that a training begins with."""
    more = [item for item in arguments if key_of(item) == "init_from"]
    return " ".join(map(shlex.quote, ["lit-gans", "train", f"experiment={path}", *more]))


def planned(arguments: list[str]) -> list[str]:
    """Replaces `experiment=photos`, or `data=folder` alone, by the experiment that `plan` writes; returns the
    arguments of other trainings unchanged.

    Raises:
        RefusedInput: several runs or processes, each of which would choose other settings.
    """
    chosen = {key_of(item): item.partition("=")[2] for item in arguments}
    alone = chosen.get("data") == "folder" and not {"experiment", "model"} & {*chosen}
    if chosen.get("experiment") != EXPERIMENT and not alone:
        return arguments
    if any(item.startswith("-") for item in arguments) and not is_sweep(arguments):  # --cfg, which trains nothing
        return without_own(plan, arguments)[1]
    processes = max(int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "SLURM_NTASKS"))
    if is_sweep(arguments) or processes > 1:
        what = "experiment=photos" if not alone else "data=folder without model= and experiment="
        root = shlex.quote(f"data.root={chosen.get('data.root', 'FOLDER')}")
        raise RefusedInput(
            f"{what} chooses settings for one run of one process by timing it: choose once with `lit-gans plan {root}`,"
            " then give the file that it writes as experiment=FILE."
        )
    resumes = chosen.get("resume", "none") != "none"
    path = _path(chosen) if resumes else _plan(arguments)  # a plan made before may differ from what is given
    given = (item for item in without_own(plan, arguments)[1] if key_of(item) != "experiment")
    return [f"experiment={path}", *(item for item in given if resumes or not _is_written(item))]


def plan(overrides: list[str], minutes: float = 60.0, output: str | None = None) -> Path:
    """Looks at the pictures of a folder and times this device, then chooses the size of the images, the network's
    width, batch, weight of R1, duration and evaluation, and writes them as an experiment.

    Prints what it chooses, how long that takes, and the keys that change it. Keys of `lit-gans train` that are given
    are kept. The rules are in `lit_gans.cli.rules`.

    Args:
        minutes: duration of the training, evaluations included.
        output: file to write, in a folder named `experiment`; null writes `planned/experiment/plan_FOLDER.yaml`.

    Returns:
        The path of the file.
    """
    refuse_not_positive(minutes=minutes)
    given = {str(key_of(item)): value_of(item) for item in overrides if _is_written(item)}
    if "data.root" not in given:
        raise RefusedInput("data.root is required: the folder of the pictures, as in data.root=photos.")
    path = experiment_output(output or _path(given))
    choice = Choice(given, beginning(overrides))
    lines = []
    with process_state_restored():
        for line in _chosen(choice, 60 * minutes):
            lines.append(line)
            print(line, flush=True)
    notes = [f"lit-gans plan {' '.join(overrides)} minutes={minutes:g}", *lines]
    write_experiment(path, notes, choice.values)
    print(f"written:   {path}", flush=True)
    return path


def _plan(arguments: list[str]) -> Path:
    """Calls `plan` with a command's arguments."""
    own, overrides = without_own(plan, arguments)
    options = [item for item in overrides if item.startswith("-")]
    if options:
        raise RefusedInput(f"unrecognized arguments: {' '.join(options)}: settings are given as key=value.")
    return plan(overrides, **own)


@dataclass(frozen=True)
class Beginning:
    """The run whose networks a training begins with.

    Args:
        checkpoint: path of its checkpoint.
        model: option of `model`.
        values: size of its images, network and widths, by key.
    """

    checkpoint: str
    model: str
    values: dict[str, Any]


def beginning(overrides: list[str]) -> Beginning | None:
    """Returns the run that `init_from` names, or None.

    Raises:
        RefusedInput: it does not exist, or is not of a GAN that has a name.
    """
    given = next((value_of(item) for item in overrides if key_of(item) == "init_from"), None)
    if given is None:
        return None
    checkpoint = read_checkpoint(given)
    name = checkpoint.get(FORMAT_KEY, {}).get("class_path")
    model = next((option for option, cls in gans().items() if class_path(cls) == name), None)
    if model is None:
        raise RefusedInput(f"init_from={given}: it is not a run of a GAN that model= names, but of {name}.")
    loop = inspect.signature(AdversarialModule.__init__).parameters.keys() - {"latent_dim"}
    settings = to_plain(dict(checkpoint["hyper_parameters"]))
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    own = {f"model.{key}": value for key, value in plain.items() if key not in {*loop, "num_classes"}}
    return Beginning(given, model, own | {"data.image_size": settings.get("image_size", 64)})


class Choice:
    """Options and values of an experiment, by key: those that the user gives stay as they are.

    Args:
        given: options and values.
        begins: the run whose networks the training begins with, whose size, network and widths are then given, too.
    """

    def __init__(self, given: dict[str, Any], begins: Beginning | None = None) -> None:
        self.begins = begins
        if begins is not None:
            own = begins.values if begins.model == MODEL else begins.values | {"model": begins.model}
            if given.get("model", begins.model) == begins.model:  # another one is refused, with both names
                given = own | given
        self.given = given
        model = given.get("model")
        # the settings of a GAN on the digits, where there are some: those of its paper are for large networks
        base = {"experiment": EXPERIMENT if model is None else f"{model}_digits", "data": "folder"}
        self.values: dict[str, Any] = {**base, **given}
        if base["experiment"] not in options("experiment"):
            del self.values["experiment"]

    def prefer(self, values: dict[str, Any]) -> None:
        """Sets values whose keys are not given."""
        self.values |= {key: value for key, value in values.items() if key not in self.given}

    def config(self, **more: str) -> dict[str, Any]:
        """Returns the resolved configuration, with further options."""
        values = self.values | more
        if values.get("metrics") == "none":
            values = {key: value for key, value in values.items() if not key.startswith("metrics.")}
        return resolve(compose(*(f"{key}={as_typed(value)}" for key, value in values.items())))


def _chosen(choice: Choice, seconds: float) -> Iterator[str]:
    """Completes a choice for a training of some seconds, and yields what it is, line by line."""
    if choice.values["data"] != "folder":
        raise RefusedInput(f"a plan is for data=folder, not data={choice.values['data']}.")
    module, data, _ = build(choice.config(metrics="none"))
    assert isinstance(data, Folder)
    pictures = survey(data.source().paths, data.num_classes, data.frame)
    colors = {1: "gray", 3: "color"}
    color, classes = colors.get(pictures.channels, f"{pictures.channels}-channel"), pictures.num_classes
    device = chosen_device(None)
    yield (
        f"{pictures.num:,} {color} pictures of {pictures.width}x{pictures.height} pixels (width x height)"
        f"{f', {classes} classes (model.num_classes={classes} uses them)' if classes else ''}, {device.type}"
    )
    if pictures.num < _FEW and choice.begins is None:
        yield f"few pictures: with fewer than {_FEW}, init_from= a run on similar ones repeats them less"
    if pictures.unreadable:
        opened = f"{pictures.unreadable} of {min(pictures.num, LOOKED_AT)} pictures that were opened"
        yield f"{opened} cannot be read: data.on_error=skip leaves such ones out ({pictures.reason.rstrip('.')})"
    if data.source().left_out:
        lines = data.source().left_out
        yield f"{len(lines)} files are left out (data.on_error=skip), such as: {lines[0]}"

    choice.prefer({"data.channels": pictures.channels})
    if choice.begins is not None:
        yield _line("begins", _begun(choice), "init_from=")
    for_iterations = (1 - rules.EVALUATION_SHARE - _OUTSIDE) * seconds
    timing = _fitted(choice, pictures, for_iterations)
    per_image = 1 / timing.images_per_second
    size, width = as_size(choice.values["data.image_size"]), choice.values["model.generator_width"]
    cut = "cropped to the center" if pictures.same_shape else "cropped to the central square"
    yield _line("images", f"{size_text(size)}, {cut}", "data.image_size= data.crop= data.channels= data.flip=true")
    yield _line("networks", f"width {width}: {1 / per_image:,.0f} images/s here", "model= model.generator_width=")

    batch = choice.values["data.batch_size"]
    step = batch * module.batches_per_step
    choice.prefer({"trainer.max_steps": rules.iterations(for_iterations, step * per_image)})
    max_steps = choice.values["trainer.max_steps"]
    images = max_steps * step
    choice.prefer({"callbacks.ema.half_life": rules.half_life(batch)})
    if choice.values.get("experiment") == EXPERIMENT:
        choice.prefer({"model.r1_gamma": rules.gamma(size, batch)})
    elif choice.values["model"] == "r3gan":
        choice.prefer(rules.r3gan(size))
    choice.prefer({"callbacks.samples.every_n_steps": rules.grids_every(max_steps)})
    gamma = f", R1 gamma {choice.values['model.r1_gamma']}" if "model.r1_gamma" in choice.values else ""
    yield from busy_machine([timing])
    yield _line("learning", f"batches of {batch}{gamma}", "data.batch_size= model.r1_gamma= model.augmentation=")

    measured, said, notices = _measured(choice, pictures, images * per_image, module.trains_against)
    expected = (images * per_image + measured) / (1 - _OUTSIDE)
    yield _line(
        "duration",
        f"{max_steps:,} iterations, each picture {images / pictures.num:.0f} times: about {in_words(expected)}",
        "minutes= trainer.max_steps=",
    )
    yield _line("evaluation", said, "metrics=none metrics.every_n_steps=")
    yield from notices
    if images < rules.shapes(size):
        needed = rules.shapes(size) * seconds / images / 60
        yield f"too short to learn shapes at this size: minutes={math.ceil(needed)}, or smaller images"


def _begun(choice: Choice) -> str:
    """Returns what the training begins with, in words.

    Raises:
        RefusedInput: networks of the given settings have too little in common with it.
    """
    assert choice.begins is not None
    module, _, _ = build(choice.config(metrics="none"))
    InitFrom(choice.begins.checkpoint).load(module)
    size = size_text(as_size(choice.values["data.image_size"]))
    width = choice.values.get("model.generator_width")
    return f"with {choice.begins.checkpoint}: {choice.begins.model}, {size}, width {width}"


def _fitted(choice: Choice, pictures: Survey, seconds: float) -> Timing:
    """Chooses size, width and batch for a training of some seconds; returns its timing."""
    given = "data.image_size" in choice.given
    sizes = [as_size(choice.values["data.image_size"])] if given else rules.possible_sizes(pictures)
    widths = (choice.values["model.generator_width"],) if "model.generator_width" in choice.given else rules.WIDTHS

    def timed(size: Size, width: int) -> Timing:
        shorter = min(sides(size))
        choice.prefer(
            {"data.image_size": list(sides(size)), "data.batch_size": rules.batch_size(shorter, pictures.num)}
        )
        choice.prefer({"model.generator_width": width, "model.discriminator_width": width})
        config = choice.config(metrics="none")
        noise = Noise(size, config["data"]["channels"], config["data"]["batch_size"])
        return speed(config, torch.get_num_threads(), _TRIAL, noise)

    first = sizes[min(1, len(sizes) - 1)], widths[0]
    timing = timed(*first)
    best = rules.network(sizes, widths, seconds, rules.scaled(1 / timing.images_per_second, first))
    return timing if best == first else timed(*best)


def _measured(choice: Choice, pictures: Survey, seconds: float, seen: tuple[str, ...]) -> tuple[float, str, list[str]]:
    """Chooses the evaluation of a training of some seconds, by none of the networks that the model is trained against;
    returns its seconds, what it is, in words, and what else to say of it.
    """
    if choice.given.get("metrics") == "none":
        return 0.0, "none, as given", []
    option, notices = suitable_metrics("folder", Folder.metrics, seen)
    channels = choice.values["data.channels"]
    if channels not in (1, 3, 4):
        option, notices = "none", [f"metrics do not measure images with {channels} channels"]
    choice.prefer({"metrics": option})
    if choice.values["metrics"] == "none":
        return 0.0, "none", notices
    module, _, trainer = build(choice.config())
    measurement = next(iter(callbacks_of(trainer, GenerativeMetrics)), None)
    if measurement is None or "metrics" in choice.given:
        return 0.0, "as given", []
    device = chosen_device(None)
    module, extractor = module.to(device), measurement.extractor.to(device)
    generated = to_uint8(module.sample(_JUDGED, seed=0)).to(device)
    extractor(generated[:4])  # a first call is slower
    sampling, judging = (
        _seconds(lambda: module.sample(_JUDGED, seed=0)) / _JUDGED,
        _seconds(lambda: extractor(generated)) / _JUDGED,
    )
    numbers = (measurement.num_samples,) if "metrics.num_samples" in choice.given else rules.SAMPLES
    found = rules.evaluation(seconds, pictures.num, judging, sampling + judging, numbers)
    if found is None:
        choice.prefer({"metrics": "none"})
        return 0.0, f"none: two would take over a tenth of the time ({1000 * judging:.0f} ms an image)", []
    every = -(-choice.values["trainer.max_steps"] // (found.times - 1))
    choice.prefer({"metrics.num_samples": found.num_samples, "metrics.every_n_steps": every})
    return found.seconds, f"{found.times} times on {found.num_samples:,} samples: {in_words(found.seconds)} of it", []


class Noise(ImageData):
    """Random images, on which the speed of a training is that on any others."""

    possible_channels = None

    def load(self) -> tuple[UInt8[Tensor, "n c h w"], Int64[Tensor, " n"]]:
        num = 8 * self.batch_size
        shape = (num, self.channels, *sides(self.image_size))
        return torch.randint(0, 256, shape, dtype=torch.uint8), torch.zeros(num, dtype=torch.long)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def _line(name: str, what: str, keys: str) -> str:
    return f"  {name:<11}{what:<60} {keys}"


def _path(given: Mapping[Any, Any]) -> Path:
    """Returns the file of a plan: that of the folder's name, unless it is the plan of another folder of this name."""
    folder = Path(str(given.get("data.root", EXPERIMENT))).expanduser().absolute()
    name = short_name(f"plan_{re.sub(r'[^A-Za-z0-9]+', '_', folder.name).strip('_')}")
    path = Path(f"planned/experiment/{name}.yaml")
    planned_for = yaml.safe_load(path.read_bytes()).get("data", {}).get("root") if path.is_file() else None
    other = folder if planned_for is None else Path(planned_for).expanduser().absolute()
    if other.resolve() == folder.resolve() or not other.is_dir():  # or a folder that was moved
        return path
    return path.with_name(f"{name}_{hashlib.sha256(os.fsencode(folder)).hexdigest()[:6]}.yaml")


def _is_written(item: str) -> bool:
    """Whether an argument is one that the experiment's file holds."""
    key = key_of(item)
    plain = key is not None and item[0] not in "+~" and not key.startswith("hydra.")
    return plain and key not in _NOT_WRITTEN
