"""`lit-gans fit ...`: trains with the arguments of the Lightning CLI.

Examples:
    lit-gans fit -c outputs/dcgan_digits/version_0/run.yaml
    lit-gans fit --model DCGAN --data Digits --trainer.max_steps 300
    lit-gans fit --help
"""

from __future__ import annotations

import itertools
import warnings
from argparse import ArgumentError
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace
from lightning.pytorch import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from lit_gans.callbacks import RunCheckpoint
from lit_gans.callbacks.checkpoint import refuse_other_run
from lit_gans.checkpoints.locate import find_checkpoint, newest_good
from lit_gans.checkpoints.remote import is_address
from lit_gans.cli.outcome import failures_printed
from lit_gans.common._compat.lightning import KeepsGivenSettings
from lit_gans.common.atomic import set_aside, writing
from lit_gans.common.errors import RefusedInput, one_line
from lit_gans.common.quiet import quiet
from lit_gans.config.build import constructing_trainer, refuse_settings
from lit_gans.config.groups import GROUPS
from lit_gans.config.mistakes import DONE, FAILED, STOPPED, exit_with_2
from lit_gans.config.signatures import is_node
from lit_gans.training.callback import callbacks_of, continues_run
from lit_gans.training.module import AdversarialModule

_CONFIG = ("-c", "--config")
_LINKED = ("image_size", "channels")
_LIGHTNING_CHECKPOINTS = ("best", "hpc", "last", "registry")  # values of `ckpt_path` that are no paths


class SaveGivenConfig(SaveConfigCallback):
    """Saves the arguments as `config.yaml` when the training begins, so that a refused run changes no file.

    A file of another run is kept under another name, and a file that was given as an argument stays as it is.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Saves nothing yet."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        refuse_other_run(trainer)
        path = Path(trainer.log_dir or trainer.default_root_dir) / self.config_filename
        given = [Path(str(file)) for file in _files_of(self.config)]
        if not trainer.is_global_zero or (path.exists() and any(path.samefile(file) for file in given)):
            return
        if not continues_run(trainer):
            set_aside(path)
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self.parser.save(self.config, str(path), skip_none=False, overwrite=True, multifile=self.multifile)


class GansCLI(KeepsGivenSettings, LightningCLI):
    """Lightning CLI that sets the image size and the channels of the model to the values of the data.

    Attributes:
        arguments_of_fit: arguments of `Trainer.fit`, with which the caller trains. The CLI itself does not train, so
            that an error of the training is not mistaken for an error in the arguments.
        is_seed_given: whether the command line has `--seed_everything`.
    """

    arguments_of_fit: dict[str, Any]
    is_seed_given: bool

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        """Returns `fit` as the only subcommand, because GANs have no validation, test or prediction loop."""
        return {"fit": LightningCLI.subcommands()["fit"]}

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        for name in _LINKED:
            parser.link_arguments(f"data.init_args.{name}", f"model.init_args.{name}")

    def parse_arguments(self, parser: LightningArgumentParser, args: list[str]) -> None:
        self.is_seed_given = any(argument.partition("=")[0] == "--seed_everything" for argument in args)
        super().parse_arguments(parser, args)

    def before_instantiate_classes(self) -> None:
        chosen = self.config[self.subcommand]
        data = chosen["data"].get("init_args") or Namespace()
        if self.is_seed_given:
            _refuse_other_seeds(chosen)
        for file in _files_of(chosen):
            _refuse_other_sizes(str(file), yaml.safe_load(file.get_content()), data)

    def fit(self, **arguments: Any) -> None:
        """Stores the arguments. The CLI calls this method instead of `Trainer.fit`.

        Raises:
            RefusedInput: `ckpt_path` does not exist.
        """
        checkpoint = arguments.get("ckpt_path")
        if checkpoint not in (None, *_LIGHTNING_CHECKPOINTS) and not is_address(checkpoint):
            newest = newest_good(Path(checkpoint))  # if it is the folder of a run
            arguments["ckpt_path"] = str(find_checkpoint(checkpoint) if newest is None else newest[0])
        self.arguments_of_fit = arguments

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        with constructing_trainer():
            trainer = super().instantiate_trainer(**kwargs)
        refuse_settings(trainer)
        return trainer


def main(arguments: list[str]) -> int:
    """Runs the Lightning CLI with the arguments after `lit-gans fit`, and returns the exit code."""
    quiet()
    return exit_with_2(lambda: _run(["fit", *arguments]))


def _find_refused_input(error: BaseException | None) -> RefusedInput | None:
    """Returns the `RefusedInput` that caused an error of jsonargparse, or None.

    jsonargparse replaces the errors of constructors by its own errors.
    """
    while error is not None and not isinstance(error, RefusedInput):
        error = error.__cause__ or error.__context__
    return error


def _files_of(config: Namespace) -> list[Any]:
    """Returns the paths of the configuration files in parsed arguments. `-c` can also have YAML instead of a path."""
    return [file for file in config.get("config") or [] if file is not None]


def _refuse_other_sizes(name: str, given: Any, data: Namespace) -> None:
    """Raises `RefusedInput` if a model in a configuration file has another image size or other channels than the data.

    Args:
        name: path of the file.
        given: contents of the file.
        data: arguments of the data. Those that exist replace the values of the model, and can also come from the
            command line. If they do, the file's values of the model must equal its own values of the data.
    """
    model, own = (_init_args(given, group) for group in ("model", "data"))
    for key in _LINKED:
        if key in model and key in data and model[key] not in (data[key], own.get(key, data[key])):
            raise RefusedInput(
                f"{name}: model.{key} is {model[key]}, but the model uses the value of the data, {data[key]}: set"
                f" data.init_args.{key}, and leave out model.init_args.{key}."
            )


def _refuse_other_seeds(chosen: Namespace) -> None:
    """Raises `RefusedInput` if `--seed_everything` differs from the seeds that the training uses."""
    seed = chosen["seed_everything"]
    seeds = {group: (chosen[group].get("init_args") or Namespace()).get("seed", seed) for group in ("model", "data")}
    others = {group: value for group, value in seeds.items() if value != seed}
    if others:
        raise RefusedInput(
            f"--seed_everything {seed} has no effect, because the networks and the data use"
            f" {' and '.join(f'{group}.seed={value}' for group, value in others.items())}: set"
            f" {' '.join(f'--{group}.seed {seed}' for group in others)}, too."
        )


def _refuse_config_of_train(arguments: list[str]) -> None:
    """Raises `RefusedInput` for the `config.yaml` of `lit-gans train`, which has the format of Hydra."""
    for before, argument in itertools.pairwise(["", *arguments]):
        path = Path(argument if before in _CONFIG else argument.removeprefix(f"{_CONFIG[1]}="))
        if path.name == "config.yaml" and path.is_file():
            with suppress(yaml.YAMLError):
                given = yaml.safe_load(path.read_bytes())
                if isinstance(given, dict) and is_node(given.get("model")):
                    raise RefusedInput(
                        f"{path} is the configuration of lit-gans train: use {path.with_name('run.yaml')}, which is the"
                        " same configuration for lit-gans fit."
                    )


def _init_args(given: Any, group: str) -> dict[str, Any]:
    """Returns the arguments of a group in the contents of a configuration file, if the file contains them."""
    chosen = given.get(group) if isinstance(given, dict) else None
    arguments = chosen.get("init_args") if isinstance(chosen, dict) else None
    return arguments if isinstance(arguments, dict) else {}


def _run(arguments: list[str]) -> int:
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--model.").removeprefix("init_args.")
        if argument.startswith("--model.") and name in _LINKED:  # the linked value would silently replace the argument
            raise RefusedInput(f"--model.{name}: the model uses the value of the data: use --data.{name}.")
    _refuse_config_of_train(arguments)
    for group in ("model", "data", "callbacks"):
        GROUPS[group].classes()  # imports the classes, so that `--model DCGAN` needs no module path
    try:
        with warnings.catch_warnings():
            # Lightning warns that sys.argv also has arguments, but they are the same arguments
            warnings.filterwarnings("ignore", message=".*LightningCLI's args parameter.*")
            cli = GansCLI(
                AdversarialModule,
                LightningDataModule,
                args=arguments,
                subclass_mode_model=True,
                subclass_mode_data=True,
                parser_kwargs={"exit_on_error": False},
                auto_configure_optimizers=False,  # the GANs configure one optimizer per network
                seed_everything_default=0,
                save_config_callback=SaveGivenConfig,
            )
    except (ArgumentError, MisconfigurationException, OSError, TypeError, ValueError, UserWarning) as error:
        raise _find_refused_input(error) or RefusedInput(one_line(error)) from error
    with failures_printed("--ckpt_path=FILE"):
        try:
            cli.trainer.fit(**cli.arguments_of_fit)
        except MisconfigurationException as error:  # raised by Lightning before the first step
            raise RefusedInput(one_line(error)) from error
        signals = (checkpoint.received_signal for checkpoint in callbacks_of(cli.trainer, RunCheckpoint))
        return next((STOPPED + number for number in signals if number is not None), DONE)
    return FAILED
