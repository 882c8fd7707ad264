"""`python -m benchmarks record`: measures trained runs for the page of results, which is made from what it records."""

from __future__ import annotations

import datetime
import json
import shlex
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from lit_gans.checkpoints.format import flat, read_checkpoint
from lit_gans.cli.main import run as run_command
from lit_gans.common.errors import RefusedInput
from lit_gans.config.hydra_app import compose

RESULTS = Path(__file__).parent / "recorded/results.json"
_COMMAND = ["lit-gans", "train"]
Result = dict[str, Any]


def record(command: str, run: str, judges: Sequence[str] = (), output: str = str(RESULTS)) -> list[Result]:
    """Measures the last checkpoint of a run, and records the scores and their protocol.

    Args:
        command: command that trained the run, such as `lit-gans train experiment=dcgan_digits seed=1`.
        run: folder of the run.
        judges: further values of `metrics=` beside the run's own, such as `efficientnet_lite2`.
        output: JSON file of all results. A result of the same command and extractor is replaced.

    Returns:
        The new results, one for each extractor.

    Raises:
        RefusedInput: The command does not train what the run has trained, the run has not ended, or no FID is measured.
    """
    config = DictConfig(OmegaConf.load(Path(run, "config.yaml")))
    refuse_other_command(command, config)
    checkpoint = Path(run, "checkpoints/last.ckpt")
    iterations = read_checkpoint(checkpoint)["global_step"]
    if iterations != config.trainer.max_steps:
        planned = config.trainer.max_steps
        raise RefusedInput(f"{run} has trained {iterations} of {planned} iterations: go on with resume=.")
    found = [measured(command, iterations, checkpoint, judge) for judge in (None, *judges)]
    path = Path(output)
    kept = json.loads(path.read_text()) if path.exists() else []
    new = {_key(result): result for result in found}
    results = sorted({**{_key(result): result for result in kept}, **new}.values(), key=_key)
    path.write_text(json.dumps(results, indent=1) + "\n")
    return found


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


def refuse_other_command(command: str, config: DictConfig) -> None:
    """Raises `RefusedInput` if a command composes other networks, data, iterations or another seed than a run has."""
    ours, theirs = _trained(compose(*_overrides(command))), _trained(config)
    others = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
    if others:
        shown = ", ".join(f"{name} is {theirs.get(name)}, not {ours.get(name)}" for name in others[:3])
        raise RefusedInput(f"the run is not of {command}: its {shown}.")


def _trained(config: DictConfig) -> dict[str, Any]:
    """Returns the settings that decide what is trained, by dotted names."""
    parts: dict[str, Any] = {name: OmegaConf.to_container(config[name], resolve=True) for name in ("model", "data")}
    return flat({**parts, "seed": config.seed, "trainer": {"max_steps": config.trainer.max_steps}})


def _overrides(command: str) -> list[str]:
    words = shlex.split(command)
    if words[:2] != _COMMAND:
        raise RefusedInput(f"command={command}: begin with {' '.join(_COMMAND)}.")
    return words[2:]


def _key(result: Result) -> tuple[str, str, str]:
    return result["data"], result["extractor"], result["command"]
