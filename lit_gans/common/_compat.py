"""Private APIs of other libraries, each with the reason for its use, in the one module that may break with a release.

`pyproject.toml` sets upper bounds for these libraries; `tests/common/test_compat.py` fails once an entry is obsolete.
Private APIs for the strategies are in `lit_gans/strategies/_compat.py`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies.launchers.subprocess_script import _SubprocessScriptLauncher
from torch import Tensor

try:
    from torch.foreach import lerp_ as _lerp
except ImportError:  # torch 2.11, which pyproject.toml allows
    _lerp = torch._foreach_lerp_


def run_hydra(arguments: Sequence[str], job: Callable[[Any], Any], config_module: str, config_name: str) -> None:
    """Runs a job like `hydra.main`, but with given command-line arguments, and raises all errors.

    `hydra.main` reads `sys.argv`, and prints errors and exits unless `HYDRA_FULL_ERROR` is set. The public
    `hydra.compose` does not support sweepers, launchers, `--cfg`, `--info` and shell completion.
    """
    from hydra import version
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path, get_args_parser
    from hydra.core.config_search_path import SearchPathQuery
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    version.setbase("1.3")
    parser = get_args_parser()
    parsed = parser.parse_intermixed_args(list(arguments))
    search_path = create_config_search_path(f"pkg://{config_module}")
    if parsed.config_dir is not None:
        folder = f"file://{os.path.abspath(parsed.config_dir)}"
        search_path.prepend(provider="command-line", path=folder, anchor=SearchPathQuery(provider="schema"))
    GlobalHydra.instance().clear()
    hydra = Hydra.create_main_hydra2(task_name="lit-gans", config_search_path=search_path)
    chosen = {"config_name": parsed.config_name or config_name, "overrides": parsed.overrides}
    try:
        if parsed.hydra_help:
            hydra.hydra_help(config_name=chosen["config_name"], args_parser=parser, args=parsed)
        elif parsed.cfg is not None:
            hydra.show_cfg(**chosen, cfg_type=parsed.cfg, package=parsed.package, resolve=parsed.resolve)
        elif parsed.info is not None:
            hydra.show_info(parsed.info, **chosen)
        elif parsed.shell_completion:
            hydra.shell_completion(**chosen)
        elif parsed.multirun or hydra.get_mode(**chosen) == RunMode.MULTIRUN:
            chosen["overrides"] = [*parsed.overrides, "hydra.mode=MULTIRUN"]
            hydra.multirun(**chosen, task_function=job)
        else:
            hydra.run(**chosen, task_function=job)
    finally:
        GlobalHydra.instance().clear()


class CommandLauncher(_SubprocessScriptLauncher):
    """Lightning's launcher of further processes, with a custom command.

    Lightning runs `sys.argv` again, which loses the sweep of Hydra and does not work in a notebook.
    """

    def __init__(self, launcher: _SubprocessScriptLauncher, command: Sequence[str]) -> None:
        super().__init__(launcher.cluster_environment, launcher.num_processes, launcher.num_nodes)
        self.command = list(command)

    def _call_children_scripts(self) -> None:
        self._check_can_spawn_children()
        os.environ |= {
            "MASTER_ADDR": self.cluster_environment.main_address,
            "MASTER_PORT": str(self.cluster_environment.main_port),
            "NODE_RANK": str(self.cluster_environment.node_rank()),
            "LOCAL_RANK": str(self.cluster_environment.local_rank()),
            "WORLD_SIZE": str(self.num_processes * self.num_nodes),
        }
        for local_rank in range(1, self.num_processes):
            environment = os.environ | {"LOCAL_RANK": str(local_rank)}
            self.procs.append(subprocess.Popen(self.command, env=environment))


def lerp_all(targets: Sequence[Tensor], sources: Sequence[Tensor], weight: float) -> None:
    """Interpolates many tensors in one kernel on CUDA; older versions of torch have no public name for it."""
    _lerp(list(targets), list(sources), weight)


def start_others_with(trainer: Trainer, command: Sequence[str]) -> None:
    """Makes a trainer start further processes, if any, with `command`."""
    if isinstance(trainer.strategy.launcher, _SubprocessScriptLauncher):
        trainer.strategy._launcher = CommandLauncher(trainer.strategy.launcher, command)


@contextmanager
def other_class_other_arguments() -> Iterator[None]:
    """Makes a class that replaces another one start with its own defaults. jsonargparse otherwise passes on arguments
    of the same name: RMSprop would silently train with Adam's learning rate.
    """

    from jsonargparse import Namespace, _typehints

    def discard(parser: Any, previous: Any, value: Any) -> None:
        if previous and "init_args" in previous and previous["class_path"] != value["class_path"]:
            previous["init_args"] = Namespace()

    kept = _typehints.discard_init_args_on_class_path_change
    _typehints.discard_init_args_on_class_path_change = discard
    try:
        yield
    finally:
        _typehints.discard_init_args_on_class_path_change = kept
