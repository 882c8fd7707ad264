"""Where a run lives: `outputs/<experiment or model_data>/version_N`, the same for every process of the run."""

from __future__ import annotations

import os
from pathlib import Path

from lit_gans.common.atomic import kept
from lit_gans.common.errors import RefusedInput

OUTPUTS = Path("outputs")
LAST = Path("checkpoints") / "last.ckpt"


def run_folder(experiment: str | None, model: str, data: str, resume: str) -> str:
    """Returns the folder of this run: a new version, or the resumed run's own."""
    return broadcast_from_rank_0(lambda: str(_run_folder(OUTPUTS / (experiment or f"{model}_{data}"), resume)))


def _run_folder(parent: Path, resume: str) -> Path:
    if resume == "auto":
        newest = newest_run(parent)
        return newest or _next_version(parent)
    if resume != "none" and Path(resume).parent.name == LAST.parent.name:
        return Path(resume).parent.parent
    return _next_version(parent)


def sweep_folder() -> str:
    """Returns a new folder for the runs of a sweep."""
    return broadcast_from_rank_0(lambda: str(_next_version(OUTPUTS / "sweeps")))


def newest_run(parent: Path) -> Path | None:
    """Returns the highest version in `parent` that has a last checkpoint."""
    versions = [folder for folder in parent.glob("version_*") if kept(folder / LAST)]
    return max(versions, key=_number, default=None)


def resume_path(resume: str, folder: str | Path) -> Path | None:
    """Returns the checkpoint to resume from, or None for a new run.

    Raises:
        RefusedInput: the named checkpoint does not exist.
    """
    if resume == "none":
        return None
    if resume == "auto":
        return kept(Path(folder) / LAST)
    if not Path(resume).exists():
        raise RefusedInput(f"resume={resume}: there is no such checkpoint; resume=auto takes the newest run.")
    return Path(resume)


def _next_version(parent: Path) -> Path:
    """Claims the next free number; two runs that start at once get two folders. The processes that srun starts share
    nothing but their job: that is the number, with that of the step where it is not the first.
    """
    job = _job_of_several()
    if job:
        step = os.environ.get("SLURM_STEP_ID", "0")
        return parent / (f"version_{job}" if step == "0" else f"version_{job}.{step}")
    parent.mkdir(parents=True, exist_ok=True)
    number = max(map(_number, parent.glob("version_*")), default=(-1,))[0] + 1
    while True:
        try:
            (parent / f"version_{number}").mkdir()
            return parent / f"version_{number}"
        except FileExistsError:
            number += 1


def _job_of_several() -> str | None:
    """Returns the SLURM job, where this is one of several processes that srun started. In its shells, which Lightning
    tells by their names, every run is one of its own.
    """
    told = os.environ.get
    alone = int(told("SLURM_NTASKS", "1")) == 1 or told("SLURM_JOB_NAME") in ("bash", "interactive")
    return None if alone or "SLURM_PROCID" not in os.environ else told("SLURM_JOB_ID")


def _number(folder: Path) -> tuple[int, ...]:
    numbers = folder.name.removeprefix("version_").split(".")
    return tuple(map(int, numbers)) if all(number.isdigit() for number in numbers) else (-1,)


_agreements = 0


def broadcast_from_rank_0(choose) -> str:
    """Returns rank 0's choice on every process that torchrun started; they share the store of its agent."""
    global _agreements
    from lit_gans.strategies.rendezvous import attempt_store

    store = attempt_store()
    if store is None:
        return choose()
    _agreements += 1
    key = f"agreed/{_agreements}"
    if os.environ["RANK"] == "0":
        store.set(key, choose())
    return store.get(key).decode()
