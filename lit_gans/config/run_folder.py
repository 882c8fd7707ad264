"""Run folders: `outputs/NAME/version_N`, the same for all processes of a run."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omegaconf import MISSING

from lit_gans.checkpoints.exported import HUB
from lit_gans.checkpoints.locate import ZOO, checkpoints_of, run_of, zoo
from lit_gans.checkpoints.remote import is_address
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.common.folder_lock import locked
from lit_gans.common.paths import short_name
from lit_gans.config.signatures import schema, target_class

logger = logging.getLogger(__name__)

OUTPUTS = Path("outputs")
LAST = Path("checkpoints") / "last.ckpt"
_PROCESSING = ("cache", "crop", "on_error", "placement")  # arguments of a data source that do not choose its images
_RANKS = ("RANK", "GROUP_RANK", "NODE_RANK", "SLURM_PROCID")  # of torchrun, nodes and srun
_LONGEST_ORIGIN = 60  # bytes of the last component of an origin in a run's name
_choices = itertools.count()  # choices broadcast between the processes of torchrun


def run_name(choices: Mapping[str, str | None], own: Mapping[str, str | None], origins: Sequence[str]) -> str:
    """Returns the name that similar runs share: that of the experiment and of the model and data that replace its own,
    or of model and data.

    Args:
        choices: options of the groups `experiment`, which may be None, `model` and `data`.
        own: options that the experiment alone would have.
        origins: values that identify the data, such as the folder of the images; other values give another name.
    """
    experiment = choices["experiment"]
    named = [choices[group] for group in ("model", "data") if experiment is None or choices[group] != own[group]]
    name = "_".join([*filter(None, [experiment, *named]), *map(_short, origins)])
    return short_name(name)


def data_origins(data: dict[str, Any]) -> list[str]:
    """Returns the values that identify the images of a data source: its required arguments, and text that differs from
    its default.

    Args:
        data: node of the data source; missing arguments are `???`.
    """
    signature = schema(target_class(data["_target_"], "data"))
    given = {name: data[name] for name in signature if name != "_target_" and data.get(name, MISSING) != MISSING}
    required = [str(value) for name, value in given.items() if signature[name] == MISSING]
    chosen = [
        os.path.abspath(value) if name == "root" and "://" not in value else f"{name}={value}"  # also before a download
        for name, value in given.items()
        if isinstance(value, str) and value != signature[name] != MISSING and name not in _PROCESSING
    ]
    return required + chosen


def _short(origin: str) -> str:
    """Returns the last component of a path or address and a short hash of all of it."""
    complete = os.path.abspath(origin) if os.path.exists(origin) else origin
    last = re.sub(r"[^A-Za-z0-9]+", "-", complete.rstrip("/").rpartition("/")[2]).strip("-")[:_LONGEST_ORIGIN]
    return f"{last}-{hashlib.sha256(os.fsencode(complete)).hexdigest()[:6]}"


def run_folder(name: str, resume: str) -> Path:
    """Returns the folder of this run: a new version, or the folder of the resumed run.

    Raises:
        RefusedInput: the folder cannot be created.
    """
    return Path(broadcast_from_rank_0(lambda: str(_run_folder(OUTPUTS / name, resume))))


def _run_folder(parent: Path, resume: str) -> Path:
    if resume == "auto":
        return newest_run(parent) or _next_version(parent)
    if resume != "none" and Path(resume).parent.name == LAST.parent.name:
        return Path(resume).parent.parent
    if resume != "none" and checkpoints_of(Path(resume)):
        return Path(resume)
    return _next_version(parent)


def results_folder(given: str, checkpoint: Path) -> Path:
    """Returns the folder for what a command makes of a checkpoint: that of its run, or `outputs/NAME` for the zoo, the
    Hub and addresses.

    Args:
        given: what the user gave.
        checkpoint: path of the checkpoint that it names.
    """
    if given.startswith(HUB):
        return OUTPUTS / given.removeprefix(HUB)
    if is_address(given):
        return OUTPUTS / _short(given)
    in_zoo = checkpoint.resolve().parent == zoo().resolve()
    return OUTPUTS / ZOO / checkpoint.name if in_zoo else run_of(checkpoint)


def sweep_folder() -> Path:
    """Returns a new folder for the runs of a sweep.

    Raises:
        RefusedInput: the folder cannot be created.
    """
    return Path(broadcast_from_rank_0(lambda: str(_next_version(OUTPUTS / "sweeps"))))


def refuse_folder(path: str | Path, key: str) -> None:
    """Raises `RefusedInput` if a folder can be neither used nor created.

    Args:
        path: path of the folder.
        key: name of the folder in the error message.
    """
    if is_address(path):
        raise RefusedInput(f"{key}={path}: expected a local folder; only hydra.run.dir, of one run, may be an address.")
    first = Path(path).absolute()
    while not os.path.lexists(first):
        first = first.parent
    with refusing(f"{key}={path}: the folder cannot be created or written"):
        for part in Path(path).absolute().relative_to(first).parts:
            with suppress(FileNotFoundError):
                os.lstat(first / part)  # raises another error if the name is too long
        with TemporaryDirectory(dir=first, prefix=".lit_gans_"):  # whatever the permissions say
            pass


def output_file(path: str | Path) -> Path:
    """Returns the path of a file that a command will write, in a folder that exists; logs that it replaces another.

    Raises:
        RefusedInput: the file can be neither overwritten nor created.
    """
    path = Path(path)
    if os.path.isdir(path):
        raise RefusedInput(f"output={path} is a folder: give the path of a file in it.")
    refuse_folder(path.parent, "output")
    with refusing(f"output={path}: the file cannot be created"):
        path.parent.mkdir(parents=True, exist_ok=True)
        exists = path.exists()
    if exists:
        if not os.access(path, os.W_OK):
            raise RefusedInput(f"output={path}: the file cannot be overwritten, its permissions do not allow it.")
        logger.info("%s will be replaced", path)
    return path


@contextmanager
def own_folder(folder: Path, is_copy: bool = False) -> Iterator[None]:
    """Locks the folder of a run on rank 0, and removes it if the run is refused before it wrote anything.

    Args:
        folder: folder of the run.
        is_copy: whether it is a new folder for the run of an address, which is removed with all that was downloaded.

    Raises:
        RefusedInput: another training uses the folder.
    """
    first = all(os.environ.get(name, "0") == "0" for name in _RANKS)
    with locked(folder) if first else nullcontext():
        try:
            yield
        except RefusedInput:
            if is_copy:
                shutil.rmtree(folder, ignore_errors=True)
            for made in (folder, *(parent for parent in folder.parents if parent.is_relative_to(OUTPUTS.absolute()))):
                with suppress(OSError):  # not empty
                    made.rmdir()
            raise


def newest_run(parent: Path) -> Path | None:
    """Returns the highest version in `parent` that has a checkpoint."""
    versions = [folder for folder in parent.glob("version_*") if checkpoints_of(folder)]
    return max(versions, key=_number, default=None)


def _next_version(parent: Path) -> Path:
    """Claims the next free number atomically, so that concurrent runs get different folders. Processes that srun
    starts share only their job, so they use its number instead, and the number of the step if it is not the first.
    """
    job = _job_of_several()
    if job:
        step = os.environ.get("SLURM_STEP_ID", "0")
        return parent / (f"version_{job}" if step == "0" else f"version_{job}.{step}")
    refuse_folder(parent, "folder of the run")
    number = max(map(_number, parent.glob("version_*")), default=(-1,))[0] + 1
    while True:
        try:
            (parent / f"version_{number}").mkdir(parents=True)
            return parent / f"version_{number}"
        except FileExistsError:
            number += 1


def _job_of_several() -> str | None:
    """Returns the SLURM job if this is one of several processes that srun started, otherwise None. Runs in interactive
    shells, which Lightning recognizes by name, are independent.
    """
    variable = os.environ.get
    alone = int(variable("SLURM_NTASKS", "1")) == 1 or variable("SLURM_JOB_NAME") in ("bash", "interactive")
    return None if alone or "SLURM_PROCID" not in os.environ else variable("SLURM_JOB_ID")


def _number(folder: Path) -> tuple[int, ...]:
    numbers = folder.name.removeprefix("version_").split(".")
    return tuple(map(int, numbers)) if all(number.isdigit() for number in numbers) else (-1,)


def broadcast_from_rank_0(choose: Callable[[], str]) -> str:
    """Broadcasts rank 0's choice to all processes of torchrun, through the store of its agent."""
    from lit_gans.strategies.processes import attempt_store

    store = attempt_store()
    if store is None:
        return choose()
    key = f"run_folder/{next(_choices)}"
    if os.environ["RANK"] == "0":
        store.set(key, json.dumps(choose()))  # ASCII, whatever bytes a path has
    return str(json.loads(store.get(key)))
