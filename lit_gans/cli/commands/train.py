"""`lit-gans train [experiment=NAME] [key=value ...]`: trains a GAN, or a sweep with -m; the default data is digits.

Examples:
    lit-gans train experiment=sngan_digits trainer.max_steps=300
    lit-gans train model=wgan_gp data=folder data.root=PHOTOS data.image_size=64
    lit-gans train -m experiment=dcgan_digits seed=0,1,2
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from omegaconf import DictConfig

from lit_gans.callbacks import Mirror, RunCheckpoint, RunConfig
from lit_gans.callbacks.run_config import other_settings
from lit_gans.checkpoints.format import flat, read_checkpoint
from lit_gans.checkpoints.locate import FOLDER, find_checkpoint, resume_point
from lit_gans.checkpoints.remote import Remote, is_address
from lit_gans.cli.commands.plan import planned
from lit_gans.cli.notices import Notices
from lit_gans.cli.outcome import (
    SweepRun,
    entry_of,
    entry_of_checkpoint,
    failures_printed,
    found_by_sweeper,
    report,
    write_summary,
)
from lit_gans.cli.sweep_score import RefusedSweep, sweep_score
from lit_gans.cli.train_arguments import (
    RUN_FOLDER,
    arguments_of_job,
    given_folders,
    is_sweep,
    without_address,
)
from lit_gans.common._compat.lightning import start_others_with
from lit_gans.common.atomic import writing
from lit_gans.common.errors import RefusedInput
from lit_gans.common.loggers import end_loggers
from lit_gans.common.paths import shown
from lit_gans.common.process_state import process_state_restored
from lit_gans.common.quiet import quiet
from lit_gans.config.build import build, refuse_start, resolve, to_cli
from lit_gans.config.completed import experiment_file, with_defaults
from lit_gans.config.hydra_app import hydra_command
from lit_gans.config.load import config_of
from lit_gans.config.mistakes import DONE, FAILED, REFUSED, STOPPED, error_message, exit_with_2
from lit_gans.config.overrides import key_of, quote
from lit_gans.config.run_folder import (
    broadcast_from_rank_0,
    data_origins,
    existing_folders,
    own_folder,
    refuse_folder,
    run_folder,
    run_name,
    sweep_folder,
)
from lit_gans.training.callback import callbacks_of
from lit_gans.training.module import AdversarialModule

_LIMITS = ("trainer.max_steps", "trainer.max_epochs", "trainer.max_time")
_RESOLVED = "--resolved"  # flag that starts an additional process; its value is the file of the arguments of `train`


@dataclass(frozen=True)
class RunOutcome:
    """Outcome of a run of `lit-gans train`.

    Args:
        code: exit code.
        run: entry in the table of a sweep; None if nothing was trained.
        signal: number of the signal that stopped the run; None if no signal was received.
        score: value of the best checkpoint; None if it is not finite or the training was stopped.
    """

    code: int
    run: SweepRun | None = None
    signal: int | None = None
    score: float | None = None


def main(arguments: list[str]) -> int:
    """Runs the command with its arguments and returns the exit code."""
    quiet()
    if arguments[:1] == [_RESOLVED]:
        return exit_with_2(lambda: _run_additional_process(Path(arguments[1])))
    return exit_with_2(lambda: _run_or_sweep(*with_defaults(planned(arguments))))


def _run_additional_process(resolved: Path) -> int:
    """Runs an additional process of a training run, and returns the exit code."""
    with failures_printed():
        return report(train(**yaml.safe_load(resolved.read_bytes())))
    return FAILED


def _run_or_sweep(typed: list[str], notices: list[str]) -> int:
    arguments, address = without_address(experiment_file(typed))
    folders = given_folders(arguments)
    for key, path in folders.items():
        refuse_folder(path, key)
    kept = existing_folders(folders.values())
    if not is_sweep(arguments):
        return hydra_command(
            "train", lambda composed: _run_job(composed, typed, notices, kept, address).code, arguments
        )
    keys = [key_of(argument) for argument in arguments]
    if RUN_FOLDER in keys:
        raise RefusedInput(
            f"{RUN_FOLDER}= has no effect with -m: use hydra.sweep.dir=FOLDER, in which every run gets a folder."
        )
    root = folders.get("trainer.default_root_dir")
    if root is not None and "," not in root:
        raise RefusedInput(
            f"trainer.default_root_dir={root} with -m would be the folder of every run: use hydra.sweep.dir=FOLDER, in"
            " which every run gets a folder."
        )
    if "resume=auto" in arguments and "hydra.sweep.dir" not in keys:
        raise RefusedInput(
            "resume=auto would train every run again in a new folder: add hydra.sweep.dir=FOLDER to continue the sweep"
            " in this folder."
        )
    if "hydra.sweep.dir" not in keys:
        arguments = [*arguments, f"hydra.sweep.dir={quote(str(sweep_folder()))}"]
    return _sweep(arguments, typed, notices, kept)


def _sweep(arguments: list[str], typed: list[str], notices: list[str], kept: Collection[Path]) -> int:
    """Runs a sweep, prints its table, and returns the exit code."""
    runs: list[SweepRun] = []

    def job(composed: DictConfig) -> tuple[int, float | None]:
        try:
            outcome = _run_job(composed, typed, notices, kept)
        except RefusedSweep as error:
            print(f"lit-gans: {error}", file=sys.stderr)
            sys.exit(REFUSED)
        runs.extend([] if outcome.run is None else [outcome.run])
        if outcome.signal:  # ends the sweep, even if the run's checkpoint could not be written
            sys.exit(STOPPED + outcome.signal)
        return outcome.code, outcome.score

    try:
        return hydra_command("train", job, arguments)
    finally:
        if len(runs) > 1 and os.environ.get("RANK", "0") == "0":
            folder = shown(runs[0].folder.parent)
            print("\n".join(["", *write_summary(runs, folder), *found_by_sweeper(folder)]), flush=True)


def _run_job(
    composed: DictConfig, typed: list[str], notices: list[str], kept: Collection[Path], address: str | None = None
) -> RunOutcome:
    """Trains one composed configuration.

    Args:
        composed: the configuration.
        typed: arguments as the user typed them.
        notices: sentences that are logged when the training begins.
        kept: folders that are not removed if the configuration is refused.
        address: URL to which the run folder is copied, or None.
    """
    hydra = HydraConfig.get()
    overrides, sweeping = list(hydra.overrides.task), hydra.mode == RunMode.MULTIRUN
    start = time.perf_counter()
    completed, more_notices = with_defaults(overrides) if sweeping else (overrides, [])
    if completed != overrides:  # the data or the model differs between the jobs, and so do the metrics
        composed = compose(hydra.job.config_name, [*hydra.overrides.hydra, *completed])
        notices = [*notices, *more_notices]
    refuse_start(composed.resume, composed.init_from)
    if address is not None and composed.trainer.default_root_dir is not None:
        raise RefusedInput(
            f"{RUN_FOLDER}={address} is a URL, whose local folder is a new one in outputs/: leave out"
            " trainer.default_root_dir."
        )
    if composed.trainer.default_root_dir is not None and RUN_FOLDER in given_folders(list(hydra.overrides.hydra)):
        raise RefusedInput(
            f"{RUN_FOLDER}= and trainer.default_root_dir= both set the run folder: leave out one of them."
        )
    if composed.trainer.default_root_dir is None:
        composed.trainer.default_root_dir = str(_folder(composed, sweeping, address))
    config = resolve(composed)
    folder = Path(config["trainer"]["default_root_dir"])
    code, run = FAILED, SweepRun(overrides, {}, folder, folder, is_finished=False)  # outcome of a run that diverges
    trainer: Trainer | None = None
    with own_folder(folder, kept, is_copy=address is not None):
        if address is not None:
            broadcast_from_rank_0(lambda: _download(address, folder, composed.resume))
        checkpoint, reached = resume_point(config["resume"], folder)
        if sweeping and checkpoint is not None and config["resume"] == "auto":
            swept = [key_of(override) or "" for override in overrides if override not in typed]
            _refuse_other_job(checkpoint, reached, config, swept)
        config["resume"] = str(checkpoint or "none")  # all processes must resume from the same checkpoint
        init_from = config["init_from"]  # stored as typed, because a model card names networks of the zoo or the Hub
        if init_from is not None and checkpoint is None:
            init_from = str(find_checkpoint(init_from))
        ended = None if checkpoint is None else _ended_by(checkpoint, reached, config["trainer"])
        if checkpoint is not None and ended is not None:
            return _finished(checkpoint, reached, ended, overrides, config)
        with failures_printed():
            with process_state_restored():
                module, data, trainer = build(config | {"init_from": init_from, "resume": "none"})
                more = [sweep_score(), Mirror(address) if address else None]
                # the download of a URL is in a temporary folder
                typed_from = config["init_from"] or ""
                files = _files(composed, config, typed_from if is_address(typed_from) else init_from)
                callbacks = [RunConfig(config, files), Notices(notices), *filter(None, more)]
                fit(module, data, trainer, config, callbacks, init_from)
            run = entry_of(trainer, overrides, time.perf_counter() - start)
            code = report(trainer, arguments_of_job(typed, overrides))
    checkpoints = callbacks_of(trainer, RunCheckpoint) if trainer is not None else []
    signal = next((callback.received_signal for callback in checkpoints if callback.received_signal), None)
    best = next((callback.best_value for callback in checkpoints), None)
    score = best if code == DONE and best is not None and math.isfinite(best) else None
    return RunOutcome(code, run, signal, score)


def _refuse_other_job(checkpoint: Path, reached: int, config: dict[str, Any], swept: Sequence[str]) -> None:
    """Raises `RefusedInput` if `resume=auto` would continue the run of another job of a sweep.

    The jobs of a continued sweep have the numbers, and therefore the folders, of the previous jobs. With other values,
    a number can be that of another combination.

    Args:
        checkpoint: checkpoint of the run in the folder of the job.
        reached: iteration of the checkpoint.
        config: resolved configuration of the job.
        swept: keys whose values differ between the jobs.
    """
    content = read_checkpoint(checkpoint)
    saved, current = flat(config_of(content)), flat(config)
    names = [key for key in swept if key in saved and key in current and key not in ("resume", *_LIMITS)]
    others = [f"{name}={saved[name]} instead of {current[name]}" for name in names if saved[name] != current[name]]
    others = [*dict.fromkeys([*others, *other_settings(content, config)])]
    if others:
        raise RefusedInput(
            f"{shown(checkpoint)}, at iteration {reached}, is of another job: it was trained with"
            f" {', '.join(others[:3])}. A continued sweep needs the values of the first command, in the same order; add"
            " further values at the end, or choose another hydra.sweep.dir."
        )


def _ended_by(checkpoint: Path, reached: int, trainer: dict[str, Any]) -> str | None:
    """Returns the key of the limit of the training that a checkpoint has reached, or None."""
    last, limit = trainer["max_steps"], trainer.get("max_time")
    if isinstance(last, int) and 0 < last <= reached:
        return "max_steps"
    state = read_checkpoint(checkpoint).get("callbacks", {}).get("Timer") if limit else None
    if state is None:
        return None
    timer = Timer(limit, verbose=False)
    timer.load_state_dict(state)
    return "max_time" if (timer.time_remaining() or 0) <= 0 else None


def _finished(checkpoint: Path, reached: int, ended: str, overrides: list[str], config: dict[str, Any]) -> RunOutcome:
    """Returns the outcome of a run that has reached its limit before, and prints that nothing was trained.

    Args:
        checkpoint: last checkpoint of the run.
        reached: iteration of the checkpoint.
        ended: key of the limit, `max_steps` or `max_time`.
        overrides: overrides of the run.
        config: resolved configuration.

    Raises:
        RefusedInput: If the run has been trained with another model, other data or another seed.
    """
    content, limit = read_checkpoint(checkpoint), f"trainer.{ended}={config['trainer'][ended]}"
    others = other_settings(content, config)
    if others:
        raise RefusedInput(
            f"{shown(checkpoint)} is at iteration {reached}, and {limit}, so that nothing is left to train, but the run"
            f" was trained with {', '.join(others[:3])}: choose another folder for a new run."
        )
    print(
        f"Nothing was trained: {shown(checkpoint)} is at iteration {reached}, and {limit}. Use a larger"
        f" trainer.{ended} to continue from this iteration.",
        flush=True,
    )
    run = entry_of_checkpoint(content, overrides, Path(config["trainer"]["default_root_dir"]))
    states = content.get("callbacks", {})
    best = [*next((state["top"] for key, state in states.items() if key.startswith("RunCheckpoint")), {}).values()]
    return RunOutcome(DONE, run, score=best[0] if best and math.isfinite(best[0]) else None)


def _folder(composed: DictConfig, sweeping: bool, address: str | None) -> Path:
    """Returns the folder of a run: the folder given by the user, or a numbered folder in a sweep, or a version folder.

    For `resume=auto`, the newest version folder is returned. Otherwise, the version folder is new. The folder is always
    new for a run that is copied to a URL.

    Raises:
        RefusedInput: If the folder cannot be created.
    """
    hydra = HydraConfig.get()
    if sweeping or "hydra.run.dir" in given_folders(list(hydra.overrides.hydra)) or hydra.run.dir != ".":
        return Path(hydra.runtime.output_dir)
    experiment_choices = hydra.runtime.choices
    overrides = {key_of(item): item for item in hydra.overrides.task}
    # composing takes 0.2 s, so it is skipped unless an override can differ from the experiment
    if experiment_choices["experiment"] is not None and {"model", "data"} & overrides.keys():
        experiment = [*hydra.overrides.hydra, *(item for key, item in overrides.items() if key == "experiment")]
        composed_alone = compose(hydra.job.config_name, experiment, return_hydra_config=True)
        experiment_choices = composed_alone.hydra.runtime.choices
    name = run_name(hydra.runtime.choices, experiment_choices, data_origins(resolve(composed)["data"]))
    return run_folder(name, composed.resume if address is None else "none").absolute()


def _download(address: str, folder: Path, resume: str) -> str:
    """Downloads the run at a URL to its new local folder if `resume=auto` continues the run. Returns the URL.

    Raises:
        RefusedInput: If the URL cannot be read, or if it contains a run whose files a new run would overwrite.
    """
    remote = Remote(address)
    is_run = any(name.startswith(f"{FOLDER}/") for name in remote.files())
    if is_run and resume != "auto":
        raise RefusedInput(
            f"{RUN_FOLDER}={address} already has a run: use resume=auto to continue it, or choose another URL."
        )
    if is_run:
        print(f"downloading {address}", flush=True)
        remote.download(folder)
    return address


def train(config: dict[str, Any], init_from: str | None = None) -> Trainer:
    """Trains with a resolved configuration, and returns the trainer. See `fit`."""
    init_from = config["init_from"] if init_from is None else init_from
    with process_state_restored():
        module, data, trainer = build(config | {"init_from": init_from, "resume": "none"})
        fit(module, data, trainer, config, [RunConfig(config)], init_from)
    return trainer


def fit(
    module: AdversarialModule,
    data: LightningDataModule,
    trainer: Trainer,
    config: dict[str, Any],
    callbacks: Sequence[Callback],
    init_from: str | None,
) -> None:
    """Trains the objects that `build` returned for a resolved configuration, and closes the loggers.

    Args:
        module: module to train.
        data: datamodule of the training images.
        trainer: trainer that runs the training.
        config: resolved configuration.
        callbacks: callbacks that are added to the callbacks of the configuration.
        init_from: path of the checkpoint that `init_from` of the configuration selects, for additional processes.

    Raises:
        RefusedInput: If the configuration is invalid. Nothing has been trained.
    """
    trainer.callbacks[:0] = callbacks  # type: ignore[attr-defined]
    trainer.ckpt_path = None if config["resume"] == "none" else config["resume"]  # callbacks read it in `setup`
    with _resolved({"config": config, "init_from": init_from}) as file:
        start_others_with(trainer, [sys.executable, "-m", "lit_gans", "train", _RESOLVED, str(file)])
        failed = True
        try:
            trainer.fit(module, datamodule=data, weights_only=True)
            failed = False
        except MisconfigurationException as error:  # raised by Lightning before the first step
            raise RefusedInput(f"trainer: {error_message(error)}") from error
        finally:
            end_loggers(trainer.loggers, failed)


@contextmanager
def _resolved(arguments: dict[str, Any]) -> Iterator[Path]:
    """Yields the path of a temporary file with the arguments of `train`, which additional processes read."""
    with writing(Path("the temporary folder (TMPDIR)")):
        folder = TemporaryDirectory(prefix="lit_gans_")
    with folder:
        path = Path(folder.name) / "resolved.yaml"
        with writing(path):
            path.write_text(yaml.safe_dump(arguments, sort_keys=False), encoding="utf-8")
        yield path


def _files(composed: DictConfig, config: dict[str, Any], init_from: str | None) -> dict[str, str]:
    """Returns the contents of `config.yaml` and `run.yaml` by file name.

    `config.yaml` is the resolved configuration, and `run.yaml` the equivalent configuration for the Lightning CLI.
    Training with `run.yaml` writes to the subfolder `fit` of this run.
    """
    for_cli = composed.copy()
    for_cli.trainer.default_root_dir = str(Path(config["trainer"]["default_root_dir"]) / "fit")
    cli = to_cli(resolve(for_cli) | {"init_from": init_from})
    return {"config.yaml": yaml.safe_dump(config, sort_keys=False), "run.yaml": yaml.safe_dump(cli, sort_keys=False)}
