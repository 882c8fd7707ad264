"""`python -m benchmarks record`: measures trained runs for the page of results, which is made from what it records."""

from __future__ import annotations

import datetime
import itertools
import json
import re
import shlex
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra import initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from lit_gans.checkpoints.format import flat, read_checkpoint
from lit_gans.cli.main import run as run_command
from lit_gans.common.errors import RefusedInput
from lit_gans.config.groups import CONFIG_PACKAGE
from lit_gans.config.hydra_app import compose
from lit_gans.config.overrides import SWEEP_FLAGS
from lit_gans.config.run_folder import LAST

RESULTS = Path(__file__).parent / "recorded/results.json"
_COMMAND = ["lit-gans", "train"]
_SEED = re.compile(r" seed=(\d+)")
Result = dict[str, Any]


def record(command: str, run: str, judges: Sequence[str] = (), output: str = str(RESULTS)) -> list[Result]:
    """Measures the last checkpoint of a run, or of each run of a sweep, and records the scores and their protocol.

    Args:
        command: command that trained, such as `lit-gans train experiment=dcgan_digits seed=1`, or a sweep such as
            `lit-gans train -m experiment='glob(*_digits)' seed=0,1,2`.
        run: folder of the run, or of the sweep's runs.
        judges: further values of `metrics=` beside the run's own, such as `efficientnet_lite2`.
        output: JSON file of all results. A result of the same command and extractor is replaced.

    Returns:
        The new results, one for each run and extractor.

    Raises:
        RefusedInput: The command does not train what the run has trained, a run is missing or has not ended, or no FID
            is measured.
    """
    words = shlex.split(command)
    is_sweep = any(flag in words for flag in SWEEP_FLAGS)
    runs = sweep_runs(words, Path(run)) if is_sweep else {command: Path(run)}
    iterations = {each: trained_iterations(each, folder) for each, folder in runs.items()}
    found = [
        measured(each, iterations[each], folder / LAST, judge)
        for each, folder in runs.items()
        for judge in (None, *judges)
    ]
    path = Path(output)
    kept = json.loads(path.read_text()) if path.exists() else []
    new = {_key(result): result for result in found}
    results = sorted({**{_key(result): result for result in kept}, **new}.values(), key=_key)
    path.write_text(json.dumps(results, indent=1) + "\n")
    return found


def sweep_runs(words: Sequence[str], folder: Path) -> dict[str, Path]:
    """Returns the run of each job of a sweep: the one that has trained what differs least from what the job trains.

    Args:
        words: command of the sweep, split at spaces.
        folder: folder of the sweep's runs.

    Returns:
        Folders of the runs, by the command that would train each alone.

    Raises:
        RefusedInput: There is no run in the folder.
    """
    trained = {path.parent: _trained(DictConfig(OmegaConf.load(path))) for path in folder.glob("*/config.yaml")}
    if not trained:
        raise RefusedInput(f"{folder}: expected the folder of a sweep, whose runs have a config.yaml each.")
    return {
        each: min(trained, key=lambda run: len(_differences(_trained_by(each), trained[run])))
        for each in jobs([word for word in words if word not in SWEEP_FLAGS])
    }


def jobs(words: Sequence[str]) -> list[str]:
    """Returns the commands of a sweep's jobs, one for each combination of values."""
    with initialize_config_module(CONFIG_PACKAGE, version_base="1.3"):  # knows the options that glob() selects
        parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
        choices = [
            [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
            if override.is_sweep_override()
            else [str(override.input_line)]
            for override in parser.parse_overrides([*words[len(_COMMAND) :]])
        ]
    return [shlex.join([*words[: len(_COMMAND)], *combination]) for combination in itertools.product(*choices)]


def trained_iterations(command: str, run: Path) -> int:
    """Returns how many iterations a run has trained.

    Raises:
        RefusedInput: There is no run in the folder, it has trained otherwise than the command, or it has not ended.
    """
    if not (run / "config.yaml").is_file():
        raise RefusedInput(f"{run}: expected the folder of a run, which has a config.yaml.")
    config = DictConfig(OmegaConf.load(run / "config.yaml"))
    differences = _differences(_trained_by(command), _trained(config))
    if differences:
        raise RefusedInput(f"{run} is not of {command}: its {', '.join(differences[:3])}.")
    iterations: int = read_checkpoint(run / LAST)["global_step"]
    if iterations != config.trainer.max_steps:
        planned = config.trainer.max_steps
        raise RefusedInput(f"{run} has trained {iterations} of {planned} iterations: go on with resume=.")
    return iterations


def measured(command: str, iterations: int, checkpoint: Path, judge: str | None) -> Result:
    """Returns the scores of a checkpoint by the metrics of its run, or by a judge."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "evaluation.json")
        chosen = [] if judge is None else [f"metrics={judge}"]
        if run_command(["evaluate", f"checkpoint={checkpoint}", f"output={file}", *chosen]):
            raise RefusedInput(f"{checkpoint} cannot be evaluated.")
        evaluation = json.loads(file.read_text())
    protocol = evaluation["protocol"]
    halves = next((value for name, value in evaluation.items() if "two halves" in name), None)
    if halves is None:
        raise RefusedInput(
            f"{checkpoint}: {protocol['extractor']} measures no FID, which the page compares with that of two halves of"
            " the real images. Record a run whose metrics have metrics.scores.fid."
        )
    scores = {name.removeprefix("metric/"): value for name, value in evaluation.items() if name.startswith("metric/")}
    return {
        "command": command,
        "iterations": iterations,
        "date": datetime.date.today().isoformat(),
        "scores": scores,
        "halves": halves,
        **{name: protocol[name] for name in ("extractor", "data", "num_fake", "num_real", "weights", "data_sha256")},
        "versions": protocol["versions"],
    }


def _differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    """Returns what a run has trained otherwise than a command, see `_trained`."""
    others = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
    return [f"{name} is {theirs.get(name)}, not {ours.get(name)}" for name in others]


@cache
def _trained_by(command: str) -> dict[str, Any]:
    """Returns the settings that decide what a command trains, by dotted names."""
    return _trained(compose(*_overrides(command)))


def _trained(config: DictConfig) -> dict[str, Any]:
    """Returns the settings that decide what is trained, by dotted names."""
    parts: dict[str, Any] = {name: OmegaConf.to_container(config[name], resolve=True) for name in ("model", "data")}
    return flat({**parts, "seed": config.seed, "trainer": {"max_steps": config.trainer.max_steps}})


def _overrides(command: str) -> list[str]:
    words = shlex.split(command)
    if words[:2] != _COMMAND:
        raise RefusedInput(f"command={command}: begin with {' '.join(_COMMAND)}.")
    return words[2:]


def without_seed(command: str) -> tuple[str, int]:
    """Returns a command without its seed, and the seed, which is 0 if the command sets none."""
    found = _SEED.search(command)
    return _SEED.sub("", command), int(found[1]) if found else 0


def _key(result: Result) -> tuple[str, str, str, int]:
    return result["data"], result["extractor"], *without_seed(result["command"])
