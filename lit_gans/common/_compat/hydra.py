"""Private APIs of Hydra. Checked with hydra-core 1.3.8."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path, get_args_parser
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra


def run_hydra(arguments: Sequence[str], job: Callable[[Any], Any], config_module: str, config_name: str) -> None:
    """Runs a job like `hydra.main`, but takes the command-line arguments as a parameter, and raises all errors.

    This function is equivalent to `hydra._internal.utils._run_hydra`, except that it does not call `Hydra.get_mode`.
    That method would compose the configuration an additional time, but only the command line can request a sweep. The
    public `hydra.main` always reads `sys.argv` (https://github.com/hydra-ecosystem/hydra/issues/2459 requests an
    argument). It also prints errors and exits, unless `HYDRA_FULL_ERROR` is set. The public `hydra.compose` does not
    support sweepers, launchers, `--cfg`, `--info` and shell completion.
    """
    version.setbase("1.3")
    parser = get_args_parser()
    parsed, unknown = parser.parse_known_intermixed_args(list(arguments))
    options = [item for item in unknown if item.startswith("-")]
    if options:
        raise ValueError(f"unrecognized arguments: {' '.join(options)}: settings are given as key=value")
    search_path = create_config_search_path(f"pkg://{config_module}")
    if parsed.config_dir is not None:
        if not os.path.isdir(parsed.config_dir):
            raise ValueError(f"Additional config directory '{parsed.config_dir}' not found")
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
        elif parsed.multirun or "hydra.mode=MULTIRUN" in parsed.overrides:
            chosen["overrides"] = [*parsed.overrides, "hydra.mode=MULTIRUN"]
            hydra.multirun(**chosen, task_function=job)
        else:
            hydra.run(**chosen, task_function=job)
    finally:
        GlobalHydra.instance().clear()
