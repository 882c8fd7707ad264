"""`lit-gans train`: one run or a sweep. Also `python -m lit_gans.cli.train`, as which further processes are started."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import torch
import yaml
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch import LightningDataModule, Trainer
from omegaconf import DictConfig

from lit_gans.callbacks import Checkpoint, RunConfig, Samples, Throughput
from lit_gans.callbacks.measurement import Measurement
from lit_gans.callbacks.samples import FILM
from lit_gans.checkpoints.format import read_checkpoint
from lit_gans.checkpoints.locate import find_checkpoint
from lit_gans.cli.sweep import Run, write_summary
from lit_gans.common.errors import RefusedInput
from lit_gans.common.quiet import quiet
from lit_gans.config.build import build, resolve, to_cli
from lit_gans.config.hydra_app import DONE, FAILED, hydra_command, refused_is_2
from lit_gans.config.registry import classes
from lit_gans.config.run_folder import resume_path

DEFAULT_EXPERIMENT = "dcgan_digits"
STOPPED = 128  # and the number of the signal
_RESOLVED = "--resolved"  # how a further process is started: with the file of the resolved configuration


def main() -> int:
    """Runs what `sys.argv` says and returns the exit code."""
    quiet()
    if sys.argv[1:2] == [_RESOLVED]:
        config = yaml.safe_load(Path(sys.argv[2]).read_text())
        return refused_is_2(lambda: _diverged_is_1(lambda: _report(train(config))))
    sys.argv[1:] = sorted(sys.argv[1:], key=lambda argument: argument not in ("-m", "--multirun"))  # for argparse
    chosen = {argument.partition("=")[0].lstrip("+~") for argument in sys.argv[1:]}
    if not chosen & {"experiment", "model", "data"}:
        first = next((i for i, argument in enumerate(sys.argv) if i and "=" in argument), len(sys.argv))
        sys.argv.insert(first, f"experiment={DEFAULT_EXPERIMENT}")  # argparse wants all overrides in one place
    elif not chosen & {"experiment", "metrics"}:
        _choose_metrics()
    runs: list[Run] = []
    try:
        return hydra_command("train", lambda composed: _job(composed, runs))
    finally:
        if len(runs) > 1 and os.environ.get("RANK", "0") == "0":
            print("\n".join(["", *write_summary(runs, _shown(runs[0].folder.parent))]), flush=True)


def _choose_metrics() -> None:
    """Adds the metrics that suit the data: the digit classifier, the default, says nothing about photographs."""
    position, name = next(((i, a[5:]) for i, a in enumerate(sys.argv) if a.startswith("data=")), (0, ""))
    suits = getattr(classes("lit_gans.data.sources", LightningDataModule).get(name), "metrics", None)
    if suits is None:
        return
    sys.argv.insert(position, f"metrics={suits}")
    if suits == "none" and os.environ.get("RANK", "0") == "0":
        print(f"metrics=none: the metrics of digits do not suit data={name}; samples are drawn.", flush=True)


def _job(composed: DictConfig, runs: list[Run]) -> int:
    config = resolve(composed)
    overrides = list(HydraConfig.get().overrides.task)
    sweeping = HydraConfig.get().mode == RunMode.MULTIRUN
    start = time.perf_counter()
    folder = Path(config["trainer"]["default_root_dir"])
    hydra_config = HydraConfig.instance()
    hidden, hydra_config.cfg = hydra_config.cfg, None  # or Lightning would rebuild further processes from overrides
    try:
        config["resume"] = str(resume_path(config["resume"], folder) or "none")  # the same for every further process
        runs.append(Run(overrides, {}, folder, folder))  # stays in the table when it diverges

        def run() -> int:
            with _own_processes(config):
                trainer = train(config)
            runs[-1] = _run(trainer, overrides, time.perf_counter() - start)
            return _report(trainer)

        code = _diverged_is_1(run)
        if code >= STOPPED and sweeping:
            sys.exit(code)  # a signal ends the whole sweep
        return code
    except RefusedInput:
        with suppress(OSError):  # not empty: it is not ours alone
            folder.rmdir()
        raise
    finally:
        hydra_config.cfg = hidden


def _diverged_is_1(run: Callable[[], int]) -> int:
    """Returns the exit code of a run; one that diverged is one sentence on stderr and 1, and a sweep goes on."""
    try:
        return run()
    except FloatingPointError as error:
        print(f"lit-gans: {error}", file=sys.stderr)
        return FAILED


@contextmanager
def _own_processes(config: dict[str, Any]) -> Iterator[None]:
    """Lets Lightning start further processes that read the resolved configuration, and forgets them afterwards: in a
    sweep the next run must not take the variables of this one for those of a launcher.
    """
    arguments, environment, threads = sys.argv, dict(os.environ), torch.get_num_threads()
    with NamedTemporaryFile("w", suffix=".yaml", delete=False) as file:
        yaml.safe_dump(config, file, sort_keys=False)
    sys.argv = [arguments[0], _RESOLVED, file.name]
    try:
        yield
    finally:
        os.unlink(file.name)
        sys.argv = arguments
        if "LOCAL_RANK" not in environment and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        if "LOCAL_RANK" not in environment:
            os.environ.clear()
            os.environ.update(environment)
            torch.set_num_threads(threads)


def train(config: dict[str, Any]) -> Trainer:
    """Trains what a resolved configuration says and returns the trainer.

    Raises:
        RefusedInput: the configuration cannot work; nothing was trained.
    """
    if config["init_from"] is not None:
        config = config | {"init_from": str(find_checkpoint(config["init_from"]))}
    checkpoint = resume_path(config["resume"], "")
    for path in (checkpoint, config["init_from"]):
        if path is not None and not Path(path).is_dir():
            read_checkpoint(path)  # a damaged file ends here
    module, data, trainer = build(config)
    trainer.callbacks.insert(0, RunConfig(config, _files(config)))
    trainer.fit(module, datamodule=data, ckpt_path=checkpoint, weights_only=True)
    return trainer


def _run(trainer: Trainer, overrides: list[str], seconds: float) -> Run:
    """Returns what the table of a sweep says of a run."""
    values = {name.removeprefix("metric/"): float(value) for name, value in trainer.callback_metrics.items()}
    values = {name: value for name, value in values.items() if f"metric/{name}" in trainer.callback_metrics}
    values = {name: value for name, value in values.items() if "_spread_" not in name}  # the table is for a terminal
    speed = next((c.mean_images_per_second for c in trainer.callbacks if isinstance(c, Throughput)), None)
    folder = Path(trainer.default_root_dir)
    values |= {"images/s": speed or float("nan"), "seconds": seconds}
    return Run(overrides, values, folder, Samples.folder(trainer) / f"{trainer.global_step:06d}.png")


def _files(config: dict[str, Any]) -> dict[str, str]:
    """Returns the resolved configuration, and the same for the Lightning CLI, whose run writes beside this one."""
    text = yaml.safe_dump(config, sort_keys=False)
    folder = config["trainer"]["default_root_dir"]
    beside = yaml.safe_load(text.replace(folder, str(Path(folder) / "fit")))
    return {"config.yaml": text, "run.yaml": yaml.safe_dump(to_cli(beside), sort_keys=False)}


def _shown(path: Path) -> Path:
    """Returns a path as short as it can be typed from here."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def _report(trainer: Trainer) -> int:
    """Prints where everything lies and returns the exit code: that of the shell for a signal, else 0."""
    checkpoint, samples = (
        next((c for c in trainer.callbacks if isinstance(c, kind)), None) for kind in (Checkpoint, Samples)
    )
    folder = _shown(Path(trainer.default_root_dir))
    step, signal = trainer.global_step, checkpoint.received_signal if checkpoint else None
    lines = [f"{'Stopped after' if signal else 'Done:'} {step} iterations in {folder}"]
    for metrics in trainer.callbacks:
        if isinstance(metrics, Measurement) and metrics.values:
            lines += metrics.summary()
    if samples is not None:
        lines.append(f"samples     {folder / 'samples' / f'{step:06d}.png'}, over time: {FILM} beside it")
    if checkpoint is not None:
        paths = {name: folder / "checkpoints" / f"{name}.ckpt" for name in ("best", "last")}
        best = paths["best"] if checkpoint.best_value is not None else paths["last"]
        if best == paths["best"]:
            lines.append(f"best        {best} ({checkpoint.best_value:.2f} at iteration {checkpoint.best_step})")
        lines.append(f"last        {paths['last']}")
        what = "input=FOLDER" if hasattr(trainer.lightning_module, "translate") else "num=64"
        lines.append(
            f"next        lit-gans train <the same overrides> resume={paths['last']}"
            if signal
            else f"next        lit-gans sample checkpoint={best} {what}"
        )
    if trainer.is_global_zero:
        print("\n  ".join(lines), flush=True)
    return STOPPED + signal if signal else DONE


if __name__ == "__main__":
    sys.exit(main())
