"""`lit-gans plan data.root=FOLDER [minutes=60]`: chooses the settings for training on a folder of images.

Examples:
    lit-gans plan data.root=photos minutes=60
    lit-gans plan data.root=photos minutes=600 data.image_size=128
    lit-gans train experiment=photos data.root=photos minutes=60
"""

from __future__ import annotations

import difflib
import functools
import inspect
import itertools
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
from lit_gans.cli.experiment_files import experiment_output, write_experiment
from lit_gans.cli.help import as_typed
from lit_gans.cli.timing import Timing, busy_machine, free_memory, speed, unless_out_of_memory
from lit_gans.cli.train_arguments import is_sweep
from lit_gans.common.device import chosen_device
from lit_gans.common.errors import RefusedInput, refuse_not_positive
from lit_gans.common.paths import short_name
from lit_gans.common.process_state import process_state_restored
from lit_gans.common.progress import in_words
from lit_gans.common.quiet import quiet
from lit_gans.common.size import Size, as_size, sides, size_text
from lit_gans.config.build import build, resolve
from lit_gans.config.completed import suitable_metrics
from lit_gans.config.groups import options
from lit_gans.config.hydra_app import compose
from lit_gans.config.mistakes import exit_with_2
from lit_gans.config.overrides import key_of, value_of
from lit_gans.config.registry import gans
from lit_gans.config.signatures import validated
from lit_gans.data.base import ImageData
from lit_gans.data.images import to_uint8
from lit_gans.data.sources.folder import Folder
from lit_gans.data.survey import LOOKED_AT, Survey, survey
from lit_gans.training.callback import callbacks_of
from lit_gans.training.module import AdversarialModule

EXPERIMENT, MODEL = "photos", "dcgan"  # experiment that a plan is based on, and its model
_OWN_KEYS = ("minutes", "output")  # keys of this command that are not part of a run's configuration
# flags of Hydra that print, and train nothing
_PRINTING = re.compile(r"--(cfg|info|hydra-help)(=.*)?|-c(job|hydra|all)?|-i.*")
_NOT_WRITTEN = ("experiment", "resume", "init_from", *_OWN_KEYS)
_TRIAL = 3.0  # duration of a timed training run, in seconds
_OVERHEAD = 0.05  # share of the time that is spent outside of iterations: startup, sample grids and checkpoints
_TIMED_IMAGES = 32  # number of images with which the evaluation is timed
_FEW = 500  # number of images below which a message suggests fine-tuning


def main(arguments: list[str]) -> int:
    """Runs the command with arguments of `train` and `plan`, and returns the exit code."""
    quiet()
    return exit_with_2(lambda: print(f"next:      {_next(_plan(arguments), arguments)}", flush=True))


def _next(path: Path, arguments: list[str]) -> str:
    """Returns the command that trains with the plan. The command includes `init_from`, which the plan lacks."""
    init_from = [item for item in arguments if key_of(item) == "init_from"]
    return " ".join(map(shlex.quote, ["lit-gans", "train", f"experiment={path}", *init_from]))


def planned(arguments: list[str]) -> list[str]:
    """Replaces `experiment=photos` by the experiment that `plan` writes for the other arguments.

    `data=folder` without a model and an experiment is replaced, too. If the run resumes, the existing plan is used. All
    other arguments are returned unchanged.

    Raises:
        RefusedInput: If there are several runs or processes, because each run or process would choose different
            settings.
    """
    values = {key_of(item): item.partition("=")[2] for item in arguments}
    is_folder_alone = values.get("data") == "folder" and not {"experiment", "model"} & {*values}
    if values.get("experiment") != EXPERIMENT and not is_folder_alone:
        return arguments
    settings = [item for item in arguments if re.match(rf"--(\w+\.|{'|'.join(_OWN_KEYS)})", item)]
    if settings:
        raise RefusedInput(
            f"unrecognized arguments: {' '.join(settings)}: settings are given as key=value, such as data.root=photos."
        )
    if any(map(_PRINTING.fullmatch, arguments)):
        return _split(arguments)[1]
    processes = max(int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "SLURM_NTASKS"))
    if is_sweep(arguments) or processes > 1:
        what = "data=folder without model= and experiment=" if is_folder_alone else "experiment=photos"
        root = shlex.quote(f"data.root={values.get('data.root', 'FOLDER')}")
        raise RefusedInput(
            f"{what} chooses settings for one run on a single process by timing it: run `lit-gans plan {root}` once,"
            " then pass the file that it writes as experiment=FILE."
        )
    flag = next((item.partition("=")[0] for item in arguments if item.startswith("-")), None)
    if flag is not None:
        raise RefusedInput(
            f"{flag} with experiment=photos: run `lit-gans plan` once, then pass the file that it writes as"
            f" experiment=FILE, with {flag}."
        )
    resumes = values.get("resume", "none") != "none"
    path = _plan_to_resume(values | _split(arguments)[0]) if resumes else _plan(arguments)
    # a resumed run keeps the typed values, because the existing plan may have been written with different values
    rest = (item for item in _split(arguments)[1] if key_of(item) != "experiment")
    return [f"experiment={path}", *(item for item in rest if resumes or not _is_written(item))]


def plan(overrides: list[str], minutes: float = 60.0, output: str | None = None) -> Path:
    """Chooses settings for training on a folder of images within a given time, and writes them as an experiment.

    Inspects the images and times short training runs on this device. Then chooses the image size, the width of the
    networks, the batch size, the weight of R1, the number of iterations and the evaluation. Prints every choice with
    the keys that change it, and the expected duration. Values that the user sets for keys of `lit-gans train` are kept.
    On a GPU, sizes, widths and batch sizes that do not fit into memory are not chosen.
    The rules are in `lit_gans.cli.rules`.

    Args:
        minutes: duration of the training in minutes, including evaluations.
        output: file to write, in a folder named `experiment`; null writes `planned/experiment/plan_FOLDER.yaml`, or
            `plan_FOLDER_2.yaml` and so on if there is a plan already.

    Returns:
        The path of the file.
    """
    refuse_not_positive(minutes=minutes)
    values = {str(key_of(item)): value_of(item) for item in overrides if _is_written(item)}
    for key in values:
        meant = difflib.get_close_matches(key, _OWN_KEYS, n=1)
        if meant:
            raise RefusedInput(f"there is no key {key!r}; did you mean {meant[0]!r}?")
    if "data.root" not in values:
        compose(f"experiment={EXPERIMENT}", *overrides)  # a misspelled data.root is an unknown key
        raise RefusedInput("data.root is required: set it to the folder of the images, such as data.root=photos.")
    path = experiment_output(output or _new_path(values))  # refused before anything is timed
    choice = Choice(values, beginning(overrides))
    lines = []
    with process_state_restored():
        for line in _chosen(choice, 60 * minutes):
            lines.append(line)
            print(line, flush=True)
    notes = [f"lit-gans plan {' '.join(overrides)} minutes={minutes:g}", *lines]
    path = path if output else _created(values)
    write_experiment(path, notes, choice.values)
    print(f"written:   {path}", flush=True)
    return path


def without_minutes(arguments: list[str]) -> list[str]:
    """Returns the arguments without the keys of a plan if `train` would plan with them."""
    return _split(arguments)[1] if f"experiment={EXPERIMENT}" in arguments else arguments


def _split(arguments: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Splits arguments into the validated values of this command's own keys, and the arguments of `train`."""
    own = {item: yaml.safe_load(item.partition("=")[2]) for item in arguments if key_of(item) in _OWN_KEYS}
    values = validated(plan, {str(key_of(item)): value for item, value in own.items()}, skip=frozenset(("overrides",)))
    return values, [item for item in arguments if item not in own]


def _plan(arguments: list[str]) -> Path:
    """Calls `plan` with the arguments of the command line."""
    values, overrides = _split(arguments)
    flags = [item for item in overrides if item.startswith("-")]
    if flags:
        raise RefusedInput(f"unrecognized arguments: {' '.join(flags)}: settings are given as key=value.")
    return plan(overrides, **values)


@dataclass(frozen=True)
class Beginning:
    """Existing run whose networks initialize a new run.

    Args:
        checkpoint: path of the run's checkpoint.
        model: option of `model`.
        values: image size, network and widths of the run, by key.
    """

    checkpoint: str
    model: str
    values: dict[str, Any]


def beginning(overrides: list[str]) -> Beginning | None:
    """Returns the run that `init_from` selects, or None if `init_from` is not set.

    Raises:
        RefusedInput: If the run does not exist, or if the class of its model is not an option of `model`.
    """
    path = next((value_of(item) for item in overrides if key_of(item) == "init_from"), None)
    if path is None:
        return None
    checkpoint = read_checkpoint(path)
    name = checkpoint.get(FORMAT_KEY, {}).get("class_path")
    model = next((option for option, cls in gans().items() if class_path(cls) == name), None)
    if model is None:
        raise RefusedInput(f"init_from={path}: this is a run of {name}, which is not an option of model=.")
    of_training = inspect.signature(AdversarialModule.__init__).parameters.keys() - {"latent_dim"}
    settings = to_plain(dict(checkpoint["hyper_parameters"]))
    plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
    of_networks = {f"model.{key}": value for key, value in plain.items() if key not in {*of_training, "num_classes"}}
    return Beginning(path, model, of_networks | {"data.image_size": settings.get("image_size", 64)})


class Choice:
    """Options and values of an experiment, by key. Values that the user sets are never changed.

    Args:
        given: options and values that the user sets.
        begins: run whose networks initialize the training, or None. The run's image size, network and widths are
            treated as set by the user.
    """

    def __init__(self, given: dict[str, Any], begins: Beginning | None = None) -> None:
        self.begins = begins
        if begins is not None:
            of_run = begins.values if begins.model == MODEL else begins.values | {"model": begins.model}
            if given.get("model", begins.model) == begins.model:  # `InitFrom` raises an error for different models
                given = of_run | given
        self.given = given
        model = given.get("model")
        # uses the settings for digits if they exist, because the settings of the papers are for large networks
        base = {"experiment": EXPERIMENT if model is None else f"{model}_digits", "data": "folder"}
        self.values: dict[str, Any] = {**base, **given}
        if base["experiment"] not in options("experiment"):
            del self.values["experiment"]

    def prefer(self, values: dict[str, Any]) -> None:
        """Sets values, except for keys that the user sets."""
        self.values |= {key: value for key, value in values.items() if key not in self.given}

    def prefer_below(self, values: dict[str, Any]) -> None:
        """Sets values below nodes, except for nodes that do not exist, such as `callbacks.ema` of callbacks=none."""
        config = self.config(metrics="none")
        for key, value in values.items():
            group, name, _ = key.split(".")
            if isinstance((config[group] or {}).get(name), dict):
                self.prefer({key: value})

    def config(self, **more: str) -> dict[str, Any]:
        """Returns the resolved configuration with additional options."""
        values = self.values | more
        if values.get("metrics") == "none":
            values = {key: value for key, value in values.items() if not key.startswith("metrics.")}
        return resolve(compose(*(f"{key}={as_typed(value)}" for key, value in values.items())))


def _chosen(choice: Choice, seconds: float) -> Iterator[str]:
    """Completes the choice for a training run of `seconds`, and yields lines that describe the choice."""
    if choice.values["data"] != "folder":
        raise RefusedInput(f"a plan is for data=folder, not data={choice.values['data']}.")
    module, data, _ = build(choice.config(metrics="none"))
    assert isinstance(data, Folder)
    pictures = survey(data.source().paths, data.num_classes, data.frame)
    colors = {1: "gray", 3: "color"}
    color, classes = colors.get(pictures.channels, f"{pictures.channels}-channel"), pictures.num_classes
    device = chosen_device(None)
    yield (
        f"{pictures.num:,} {color} images of {pictures.width}x{pictures.height} pixels (width x height, medians)"
        f"{f', {classes} classes (model.num_classes={classes} uses them)' if classes else ''}, {device.type}"
    )
    if pictures.num < _FEW and choice.begins is None:
        yield f"fewer than {_FEW} images: init_from= begins with networks of similar images, which need fewer repeats"
    if pictures.unreadable:
        opened = f"{len(pictures.unreadable)} of {min(pictures.num, LOOKED_AT)} images that were opened"
        reasons = [f"    {reason}" for reason in pictures.unreadable]
        if data.on_error == "raise":
            what = f"{opened} cannot be read; data.on_error=skip leaves out such images:"
            raise RefusedInput("\n".join([what, *reasons]))
        yield f"{opened} cannot be read, and are left out (data.on_error=skip):"
        yield from reasons
    if data.source().left_out:
        lines = data.source().left_out
        yield f"{len(lines)} files are skipped (data.on_error=skip), such as: {lines[0]}"

    choice.prefer({"data.channels": pictures.channels})
    if choice.begins is not None:
        yield _line("begins", _description_of_beginning(choice), "init_from=")
    for_iterations = (1 - rules.EVALUATION_SHARE - _OVERHEAD) * seconds
    timing = _choose_sizes(choice, pictures, for_iterations, device.type == "cuda", functools.partial(_timed, device))
    per_image = 1 / timing.images_per_second
    size, width = as_size(choice.values["data.image_size"]), choice.values["model.generator_width"]
    crop = "cropped to the center" if pictures.same_shape else "cropped to the central square"
    crop = f"data.crop={choice.given['data.crop']}" if "data.crop" in choice.given else crop
    yield _line("images", f"{size_text(size)}, {crop}", "data.image_size= data.crop= data.channels= data.flip=")
    yield _line("networks", f"width {width}: {1 / per_image:,.0f} images/s here", "model= model.generator_width=")

    batch = choice.values["data.batch_size"]
    step = batch * module.batches_per_step
    choice.prefer({"trainer.max_steps": rules.iterations(for_iterations, per_image, step)})
    max_steps = choice.values["trainer.max_steps"]
    images = max_steps * step
    choice.prefer_below({"callbacks.ema.half_life": rules.half_life(batch)})
    if choice.values.get("experiment") == EXPERIMENT:
        choice.prefer({"model.r1_gamma": rules.gamma(size, batch)})
    elif choice.values["model"] == "r3gan":
        choice.prefer_below(rules.r3gan(size))
    choice.prefer_below({"callbacks.samples.every_n_steps": rules.grids_every(max_steps)})
    gamma = f", R1 gamma {choice.values['model.r1_gamma']}" if "model.r1_gamma" in choice.values else ""
    yield from busy_machine([timing])
    yield _line("learning", f"batches of {batch}{gamma}", "data.batch_size= model.r1_gamma= model.augmentation=")

    measuring, evaluation, notices = _choose_evaluation(choice, pictures, images * per_image, module.trains_against)
    expected = (images * per_image + measuring) / (1 - _OVERHEAD)
    yield _line(
        "duration",
        f"{max_steps:,} iterations, each image {images / pictures.num:.0f} times: about {in_words(expected)}",
        "minutes= trainer.max_steps=",
    )
    yield _line("evaluation", evaluation, "metrics=none metrics.every_n_steps=")
    yield from notices
    if "trainer.max_steps" not in choice.given and for_iterations / per_image > rules.MAX_IMAGES:
        images_of_paper = f"{rules.MAX_IMAGES // 10**6} million images"
        yield f"ends before minutes={seconds / 60:g}: StyleGAN2-ADA trains on {images_of_paper}, too"
    if images < rules.shapes(size):
        needed = rules.shapes(size) * seconds / images / 60
        yield f"too short to learn shapes at this size: use minutes={math.ceil(needed)}, or smaller images"


def _description_of_beginning(choice: Choice) -> str:
    """Returns a description of the run whose networks initialize the training.

    Raises:
        RefusedInput: If the run's checkpoint fits too few weights of the networks.
    """
    assert choice.begins is not None
    module, _, _ = build(choice.config(metrics="none"))
    InitFrom(choice.begins.checkpoint).load(module)
    size = size_text(as_size(choice.values["data.image_size"]))
    width = choice.values.get("model.generator_width")
    return f"with {choice.begins.checkpoint}: {choice.begins.model}, {size}, width {width}"


def _timed(device: torch.device, config: dict[str, Any], images: ImageData) -> Timing | None:
    """Times a training run, or returns None if the run does not leave enough free memory on a GPU."""
    free = free_memory(device)
    timing = unless_out_of_memory(lambda: speed(config, _TRIAL, images))
    return timing if timing is not None and rules.fits(timing.peak_memory, free) else None


def _choose_sizes(
    choice: Choice,
    pictures: Survey,
    seconds: float,
    is_gpu: bool,
    timed: Callable[[dict[str, Any], ImageData], Timing | None],
) -> Timing:
    """Chooses the image size, width and batch size for a training run, and returns the timing.

    Args:
        choice: choice to complete.
        pictures: survey of the images.
        seconds: duration of the training in seconds.
        is_gpu: whether the device is a GPU.
        timed: times a training run with a configuration on random images. Returns None if the run does not fit into
            memory.
    """
    given = choice.given
    is_set = "data.image_size" in given
    sizes = [as_size(choice.values["data.image_size"])] if is_set else rules.possible_sizes(pictures)
    widths = (choice.values["model.generator_width"],) if "model.generator_width" in given else rules.WIDTHS

    def prefer(candidate: rules.Candidate) -> None:
        choice.prefer({"data.image_size": list(sides(candidate.size)), "data.batch_size": candidate.batch})
        choice.prefer({"model.generator_width": candidate.width, "model.discriminator_width": candidate.width})

    @functools.cache
    def timing_of(candidate: rules.Candidate) -> Timing | None:
        """Returns the timing of a candidate, or None if the candidate does not fit into memory."""
        prefer(candidate)
        config = choice.config(metrics="none")
        images = RandomImages(candidate.size, config["data"]["channels"], config["data"]["batch_size"])
        images.num_classes = config["model"].get("num_classes", 0)
        return timed(config, images)

    def measure(candidate: rules.Candidate) -> float | None:
        timing = timing_of(candidate)
        return None if timing is None else 1 / timing.images_per_second

    batch = given.get("data.batch_size")
    if is_gpu:
        batches = rules.batch_sizes(pictures.num, choice.values.get("model", MODEL)) if batch is None else [batch]
        best = rules.candidate_on_gpu(sizes, widths, batches, seconds, measure)
    else:

        def batch_of(size: Size) -> int:
            return rules.batch_size(min(sides(size)), pictures.num) if batch is None else batch

        best = rules.candidate_on_cpu(sizes, widths, batch_of, seconds, measure)
    timing = timing_of(best)
    prefer(best)
    if timing is None:
        raise RefusedInput(rules.too_large(best))
    return timing


def _choose_evaluation(
    choice: Choice, pictures: Survey, seconds: float, seen: tuple[str, ...]
) -> tuple[float, str, list[str]]:
    """Chooses the evaluation for a training run of `seconds`.

    Args:
        choice: choice to complete.
        pictures: survey of the images.
        seconds: duration of the training in seconds.
        seen: names of the feature extractors that a loss of the model uses. The evaluation must not use these
            extractors.

    Returns:
        The duration of all measurements in seconds, a description, and additional sentences.
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
    generated = to_uint8(module.sample(_TIMED_IMAGES, seed=0)).to(device)
    extractor(generated[:4])  # warm-up, because the first call is slower
    sampling, extracting = (
        _seconds(lambda: module.sample(_TIMED_IMAGES, seed=0)) / _TIMED_IMAGES,
        _seconds(lambda: extractor(generated)) / _TIMED_IMAGES,
    )
    numbers = (measurement.num_samples,) if "metrics.num_samples" in choice.given else rules.SAMPLES
    evaluation = rules.evaluation(seconds, pictures.num, extracting, sampling + extracting, numbers)
    if evaluation is None:
        choice.prefer({"metrics": "none"})
        return 0.0, f"none: two would take over a tenth of the time ({1000 * extracting:.0f} ms an image)", []
    interval = -(-choice.values["trainer.max_steps"] // (evaluation.times - 1))
    choice.prefer({"metrics.num_samples": evaluation.num_samples, "metrics.every_n_steps": interval})
    times = f"{evaluation.times} times on {evaluation.num_samples:,} samples: {in_words(evaluation.seconds)} of it"
    return evaluation.seconds, times, []


class RandomImages(ImageData):
    """Random images for timing. The training speed does not depend on the images, nor on their labels, which are 0."""

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


def _plans(given: Mapping[Any, Any]) -> Iterator[Path]:
    """Yields the paths of all plans of folders with the name of the image folder, of which the last does not exist."""
    folder = Path(str(given.get("data.root", EXPERIMENT))).expanduser().absolute()
    name = short_name(f"plan_{re.sub(r'[^A-Za-z0-9]+', '_', folder.name).strip('_')}")
    for number in itertools.count(1):
        path = Path(f"planned/experiment/{name}{f'_{number}' if number > 1 else ''}.yaml")
        yield path
        if not os.path.lexists(path):
            return


def _new_path(given: Mapping[Any, Any]) -> Path:
    """Returns the path of a new plan. Existing plans stay, because runs continue with them."""
    return [*_plans(given)][-1]


def _created(given: Mapping[Any, Any]) -> Path:
    """Creates the empty file of a new plan. Plans that are made at the same time get different files."""
    while True:
        path = _new_path(given)
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            continue


def _plan_to_resume(given: Mapping[Any, Any]) -> Path:
    """Returns the path of the newest plan of the image folder.

    Raises:
        RefusedInput: If there is no plan, or if `minutes` differs from the plan's.
    """
    refuse_not_positive(minutes=given.get("minutes"))
    folder = Path(str(given.get("data.root", EXPERIMENT))).expanduser().resolve()
    for path in [*_plans(given)][-2::-1]:
        text = path.read_text(encoding="utf-8")
        values = yaml.safe_load(text)
        if not values:  # created by a plan that is being written
            continue
        root = Path(values.get("data", {}).get("root", folder)).expanduser()
        if root.resolve() != folder and root.exists():  # a folder that no longer exists has most likely been moved
            continue
        planned_for = re.search(r"^# lit-gans plan .*minutes=(\S+)$", text, re.MULTILINE)
        minutes, before = float(given.get("minutes", math.nan)), float(planned_for[1] if planned_for else math.nan)
        if minutes != before and not math.isnan(minutes + before) and "trainer.max_steps" not in given:
            longer = max(1, round(values["trainer"]["max_steps"] * minutes / before))
            raise RefusedInput(
                f"minutes={minutes:g} differs from minutes={before:g}, for which the run that resumes was planned:"
                f" leave it out. To train for a total of {minutes:g} minutes, use trainer.max_steps={longer}."
            )
        return path
    raise RefusedInput(f"resume={given['resume']}: planned/experiment has no plan of {folder} to resume with.")


def _is_written(item: str) -> bool:
    """Returns whether an argument is written to the experiment file."""
    key = key_of(item)
    plain = key is not None and item[0] not in "+~" and not key.startswith("hydra.")
    return plain and key not in _NOT_WRITTEN
