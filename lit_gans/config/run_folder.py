"""Run folders `outputs/NAME/version_N`, which all processes of a run share."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from omegaconf import MISSING

from lit_gans.checkpoints.exported import HUB
from lit_gans.checkpoints.locate import ZOO, checkpoints_of, run_of, zoo
from lit_gans.checkpoints.remote import is_address, is_shortened_address
from lit_gans.common.atomic import remove
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.common.folder_lock import locked
from lit_gans.common.paths import short_name
from lit_gans.config.signatures import schema, target_class

logger = logging.getLogger(__name__)

OUTPUTS = Path("outputs")
LAST = Path("checkpoints") / "last.ckpt"
_PROCESSING = ("cache", "crop", "on_error", "placement")  # arguments of a data source that do not select its images
_RANKS = ("RANK", "GROUP_RANK", "NODE_RANK", "SLURM_PROCID")  # set by torchrun, by users for nodes, and by srun
_MAX_ORIGIN = 60  # maximum number of bytes of an origin's last component in the name of a run
_choices = itertools.count()  # numbers the values that are broadcast between the processes of torchrun


def run_name(choices: Mapping[str, str | None], own: Mapping[str, str | None], origins: Sequence[str]) -> str:
    """Returns the name that similar runs share.

    The name consists of the experiment, and of the model and the data if they differ from the experiment. Without an
    experiment, it consists of the model and the data.

    Args:
        choices: options of the groups `experiment`, which may be None, `model` and `data`.
        own: options of these groups in the experiment without overrides.
        origins: values that identify the data, such as the folder of the images, and that are part of the name.
    """
    experiment = choices["experiment"]
    named = [choices[group] for group in ("model", "data") if experiment is None or choices[group] != own[group]]
    name = "_".join([*filter(None, [experiment, *named]), *map(_short, origins)])
    return short_name(name)


def data_origins(data: dict[str, Any]) -> list[str]:
    """Returns the values that identify the images of a data source.

    These are the required arguments, and string arguments that differ from their default.

    Args:
        data: configuration node of the data source, in which missing arguments are `???`.
    """
    signature = schema(target_class(data["_target_"], "data"))
    values = {name: data[name] for name in signature if name != "_target_" and data.get(name, MISSING) != MISSING}
    required = [str(value) for name, value in values.items() if signature[name] == MISSING]
    changed = [
        # made absolute even if the folder does not exist yet, because the data may be downloaded later
        os.path.abspath(value) if name == "root" and "://" not in value else f"{name}={value}"
        for name, value in values.items()
        if isinstance(value, str) and value != signature[name] != MISSING and name not in _PROCESSING
    ]
    return required + changed


def _short(origin: str) -> str:
    """Returns the last component of a path or URL, with a short hash of the complete path or URL."""
    complete = os.path.abspath(origin) if os.path.exists(origin) else origin
    # `basename` splits paths of Windows at backslashes, too
    last = re.sub(r"[^A-Za-z0-9]+", "-", os.path.basename(complete.rstrip("/"))).strip("-")[:_MAX_ORIGIN]
    return f"{last}-{hashlib.sha256(os.fsencode(complete)).hexdigest()[:6]}"


def run_folder(name: str, resume: str) -> Path:
    """Returns the folder of this run, which is a new version folder or the folder of the resumed run.

    Raises:
        RefusedInput: If the folder cannot be created.
    """
    return Path(broadcast_from_rank_0(lambda: str(_run_folder(OUTPUTS / name, resume))))


def _run_folder(parent: Path, resume: str) -> Path:
    if resume == "auto":
        return newest_run(parent) or _next_version(parent)
    if resume != "none":
        path = Path(resume)
        folder = path.parent.parent if path.parent.name == LAST.parent.name else path
        if checkpoints_of(folder) and _is_run(folder):
            return folder
    return _next_version(parent)


def _is_run(folder: Path) -> bool:
    """Returns whether `lit-gans train` has written the `config.yaml` of a folder."""
    try:
        config = yaml.safe_load((folder / "config.yaml").read_bytes())
    except (OSError, yaml.YAMLError):
        return False
    return isinstance(config, dict) and {"model", "data", "trainer", "resume", "init_from"} <= config.keys()


def results_folder(given: str, checkpoint: Path) -> Path:
    """Returns the folder for the results of a command that uses a checkpoint.

    This is the folder of the checkpoint's run. A checkpoint in the zoo, on the Hugging Face Hub or at a URL has no
    local run, so its results are in a subfolder of `outputs`.

    Args:
        given: checkpoint as the user specified it.
        checkpoint: path of the checkpoint.
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
        RefusedInput: If the folder cannot be created.
    """
    return Path(broadcast_from_rank_0(lambda: str(_next_version(OUTPUTS / "sweeps"))))


def refuse_folder(path: str | Path, key: str) -> None:
    """Raises `RefusedInput` if a folder cannot be written or created.

    Args:
        path: path of the folder.
        key: name of the folder in the error message.
    """
    if is_shortened_address(path):
        raise RefusedInput(
            f"{key}={path}: expected a local folder; only hydra.run.dir can be a URL, and only for a single run."
        )
    existing = Path(path).absolute()
    while not os.path.lexists(existing):
        existing = existing.parent
    with refusing(f"{key}={path}: the folder cannot be created or written"):
        for part in Path(path).absolute().relative_to(existing).parts:
            with suppress(FileNotFoundError):
                os.lstat(existing / part)  # raises a different error if the name is too long
        # a test write is reliable, while permission bits are not
        with TemporaryDirectory(dir=existing, prefix=".lit_gans_"):
            pass


def output_file(path: str | Path) -> Path:
    """Returns the path of a file that a command will write, and creates its folder.

    Logs a message if an existing file will be replaced.

    Raises:
        RefusedInput: If the file cannot be overwritten or created.
    """
    path = Path(path)
    if os.path.isdir(path):
        raise RefusedInput(f"output={path} is a folder: use the path of a file in this folder.")
    refuse_folder(path.parent, "output")
    with refusing(f"output={path}: the file cannot be created"):
        path.parent.mkdir(parents=True, exist_ok=True)
        exists = path.exists()
    if exists:
        if not os.access(path, os.W_OK):
            raise RefusedInput(f"output={path}: the file cannot be overwritten, because it is not writable.")
        logger.info("%s will be replaced", path)
    return path


def existing_folders(paths: Iterable[str | Path]) -> set[Path]:
    """Returns the folders that exist among the given folders, the current folder, and all their parents."""
    absolute = [Path(path).absolute() for path in (*paths, ".")]
    return {folder for path in absolute for folder in (path, *path.parents) if folder.exists()}


@contextmanager
def own_folder(folder: Path, kept: Collection[Path], is_copy: bool = False) -> Iterator[None]:
    """Context manager that locks the folder of a run on rank 0.

    If `RefusedInput` is raised inside the context, the folder and its parents are removed as far as they are empty. If
    the folder was empty and the training has not begun, it is emptied first.

    Args:
        folder: folder of the run.
        kept: folders that existed before the command and are not removed, see `existing_folders`.
        is_copy: whether this is a folder for a run at a URL. If it was empty, it is removed together with the
            downloaded files.

    Raises:
        RefusedInput: If another training run uses the folder.
    """
    is_rank_0 = all(os.environ.get(name, "0") == "0" for name in _RANKS)
    was_empty = not folder.is_dir() or not any(folder.iterdir())
    with locked(folder) if is_rank_0 else nullcontext():
        try:
            yield
        except RefusedInput:
            if was_empty and (is_copy or not (folder / "config.yaml").exists()):  # only loggers have written to it
                with suppress(OSError):
                    for path in folder.iterdir():
                        remove(path)
            for path in takewhile(lambda path: path not in kept, (folder, *folder.parents)):
                with suppress(OSError):  # folders that are not empty stay
                    path.rmdir()
            raise


def newest_run(parent: Path) -> Path | None:
    """Returns the highest version folder in `parent` that has a checkpoint, or None if no folder has one."""
    versions = [folder for folder in parent.glob("version_*") if checkpoints_of(folder)]
    return max(versions, key=_number, default=None)


def _next_version(parent: Path) -> Path:
    """Creates and returns the folder with the next free version number.

    The folder is created atomically, so that concurrent runs get different folders. Processes that srun starts cannot
    agree on a free number, so they use the number of their SLURM job. If their job step is not the first, the number of
    the step is appended.
    """
    job = _shared_slurm_job()
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


def _shared_slurm_job() -> str | None:
    """Returns the number of the SLURM job if srun started this process as one of several, otherwise None.

    Returns None in interactive shells, because their runs are independent. Interactive shells are recognized by the job
    name, as in Lightning.
    """
    variable = os.environ.get
    is_single = int(variable("SLURM_NTASKS", "1")) == 1 or variable("SLURM_JOB_NAME") in ("bash", "interactive")
    return None if is_single or "SLURM_PROCID" not in os.environ else variable("SLURM_JOB_ID")


def _number(folder: Path) -> tuple[int, ...]:
    numbers = folder.name.removeprefix("version_").split(".")
    return tuple(map(int, numbers)) if all(number.isdigit() for number in numbers) else (-1,)


def broadcast_from_rank_0(choose: Callable[[], str]) -> str:
    """Calls `choose` on rank 0, and returns the value on all processes of torchrun through the store of torchrun.

    Calls `choose` on this process if torchrun did not start it.
    """
    from lit_gans.strategies.processes import attempt_store

    store = attempt_store()
    if store is None:
        return choose()
    key = f"run_folder/{next(_choices)}"
    if os.environ["RANK"] == "0":
        store.set(key, json.dumps(choose()))  # JSON is ASCII, even if a path has bytes that are not UTF-8
    return str(json.loads(store.get(key)))
