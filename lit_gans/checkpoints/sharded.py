"""Sharded checkpoints: a folder with each rank's shards of the tensors, `rest.pt` with everything else, and a commit
marker, which is written last: `commit.json` lists all other files with sizes and checksums.
"""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from lit_gans.checkpoints.remote import Remote, is_address
from lit_gans.checkpoints.torch_files import read_torch_file
from lit_gans.common.atomic import failed_write, remove, replace, unfinished
from lit_gans.common.errors import RefusedInput, refusing
from lit_gans.common.lightning import ParallelStrategy

REST, COMMIT = "rest.pt", "commit.json"
TIED = "tied"  # key of `rest.pt`: further names of tensors in `state_dict`, with the name that is stored
_BLOCK = 2**20  # bytes
Entry = tuple[int, int]  # bytes and CRC-32 of a file


# ---- writing


def write_sharded(
    checkpoint: dict[str, Any], path: str | Path, strategy: ParallelStrategy, tied: dict[str, str]
) -> None:
    """Writes a checkpoint as a folder, each rank its shards of DTensors; every rank must call it.

    Args:
        checkpoint: of Lightning.
        path: path or address of the folder.
        strategy: knows the ranks.
        tied: for each further name of a parameter or buffer its first one, since safetensors stores no tensor twice.

    Raises:
        FailedWrite: a file cannot be written; a local `path` stays as it was.
    """
    import torch.distributed.checkpoint as dcp  # slow to import

    state = checkpoint["state_dict"]
    tied = {name: first for name, first in tied.items() if {name, first} <= state.keys()}
    single = {name: value for name, value in state.items() if name not in tied}
    rest, tensors = _split_tensors(checkpoint | {"state_dict": single, TIED: tied})
    new_folder = _uploading(str(path), strategy) if is_address(path) else _replacing(Path(path), strategy)
    with new_folder as folder:
        dcp.save(tensors, storage_writer=dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True))
        if strategy.is_global_zero:
            torch.save(rest, folder / REST)


@contextmanager
def _replacing(path: Path, strategy: ParallelStrategy) -> Iterator[Path]:
    """Yields a new folder on all ranks, which replaces `path` once all ranks have written to it; see `replace`.

    The commit marker is written last; the ranks share the work of its checksums.

    Raises:
        FailedWrite: a file cannot be written; the new folder is removed and `path` stays as it was.
    """
    from torch.distributed.checkpoint.api import CheckpointException  # slow to import

    part = unfinished(path)
    try:
        if strategy.is_global_zero:
            remove(part)
            part.mkdir(parents=True)
        strategy.barrier()
        yield part
        strategy.barrier()
        entries = _gathered(checksums(part, strategy.global_rank, strategy.world_size), strategy)
        if strategy.is_global_zero:
            write_commit(part, entries)
            replace(part, path)
        strategy.barrier()
    except BaseException as error:
        with suppress(OSError):
            remove(part)
        if isinstance(error, (OSError, RuntimeError, CheckpointException)):
            raise failed_write(path, error) from error
        raise


@contextmanager
def _uploading(address: str, strategy: ParallelStrategy) -> Iterator[Path]:
    """Yields a temporary folder on each rank, whose files replace those at an address once all ranks have written.

    Nothing can be renamed there: until the commit marker has arrived, last, there is no complete checkpoint.

    Raises:
        FailedWrite: a file cannot be written.
    """
    remote = Remote(address)
    with TemporaryDirectory(prefix="lit_gans_") as name:
        yield Path(name)
        try:
            if strategy.is_global_zero:
                remote.remove(COMMIT)
                remote.remove()
            strategy.barrier()
            own = checksums(Path(name))
            _send(remote, Path(name), own)
            entries = _gathered(own, strategy)  # once all files of all ranks have arrived
            if strategy.is_global_zero:
                write_commit(Path(name), entries)
                _send(remote, Path(name), [COMMIT])
        except OSError as error:
            raise failed_write(address, error) from error
        strategy.barrier()


def _send(remote: Remote, folder: Path, names: Iterable[str]) -> None:
    for name in names:
        with (folder / name).open("rb") as file:
            remote.write(name, file)


def _gathered(own: dict[str, Entry], strategy: ParallelStrategy) -> dict[str, Entry]:
    """Returns the entries of all ranks."""
    shares = [own]
    if strategy.world_size > 1:
        shares = [{}] * strategy.world_size
        dist.all_gather_object(shares, own)
    return {name: entry for share in shares for name, entry in share.items()}


def checksums(folder: Path, rank: int = 0, world_size: int = 1) -> dict[str, Entry]:
    """Returns size and checksum of this rank's share of the files in a folder, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != COMMIT)
    return {path.relative_to(folder).as_posix(): _entry(path) for path in files[rank::world_size]}


def write_commit(folder: Path, entries: dict[str, Entry]) -> None:
    """Marks a folder as complete."""
    (folder / COMMIT).write_bytes(json.dumps({"files": dict(sorted(entries.items()))}, indent=1).encode())


def _committed(folder: Path) -> list[tuple[str, Entry]]:
    with refusing(f"{folder} is not complete: its {COMMIT} cannot be read"):
        content = json.loads((folder / COMMIT).read_bytes())
        return sorted((str(name), (int(size), int(checksum))) for name, (size, checksum) in content["files"].items())


def _entry(path: Path) -> Entry:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
        return file.tell(), checksum


# ---- reading


def read_rest(folder: Path) -> dict[str, Any]:
    """Reads everything in a sharded checkpoint except its tensors.

    Raises:
        RefusedInput: the folder is not a sharded checkpoint, or the file is damaged.
    """
    rest: dict[str, Any] = read_torch_file(folder / REST)
    return rest


def verify_shards(folder: Path, rank: int = 0, world_size: int = 1) -> None:
    """Verifies this rank's share of the files of a sharded checkpoint.

    Raises:
        RefusedInput: the folder has no commit marker, or a file is missing or damaged.
    """
    for name, entry in _committed(folder)[rank::world_size]:
        path = folder / name
        if not path.is_file() or path.stat().st_size != entry[0] or _entry(path) != entry:
            raise RefusedInput(f"{folder} is damaged: {name} is missing, or differs from its checksum.")


def read_index(folder: Path) -> dict[str, Any]:
    """Returns the sizes and dtypes of the tensors in a sharded checkpoint.

    Raises:
        RefusedInput: the index is damaged.
    """
    with refusing(f"{folder} cannot be read as a sharded checkpoint, its index is damaged"):
        return dict(_reader(folder).read_metadata().state_dict_metadata)


def read_into(tensors: dict[str, torch.Tensor], folder: Path, no_dist: bool = False) -> None:
    """Reads the tensors of a folder into given ones, by name.

    Args:
        tensors: tensors with the shapes of the folder's index; of sharded ones, each rank reads its shards.
        folder: folder of the checkpoint.
        no_dist: whether this process reads alone; otherwise every rank must call it.

    Raises:
        RefusedInput: the index is damaged.
    """
    import torch.distributed.checkpoint as dcp  # slow to import

    with refusing(f"{folder} cannot be read as a sharded checkpoint"):
        dcp.load(tensors, storage_reader=_reader(folder), no_dist=no_dist)


def read_sharded(folder: Path) -> dict[str, Any]:
    """Reads a sharded checkpoint with full tensors on the CPU, without executing code from it.

    Raises:
        RefusedInput: the folder is not a sharded checkpoint, or is damaged.
    """
    rest = read_rest(folder)
    verify_shards(folder)
    with refusing(f"{folder} cannot be read as a sharded checkpoint"):
        return merge_tensors(rest, _read_tensors(folder))


def _read_tensors(folder: Path) -> dict[str, torch.Tensor]:
    index = read_index(folder)
    tensors = {name: torch.empty(entry.size, dtype=entry.properties.dtype) for name, entry in index.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no_dist.*|.*torch.distributed is.*")
        read_into(tensors, folder, no_dist=True)
    return tensors


def _reader(folder: Path) -> Any:
    from torch.distributed.checkpoint import HuggingFaceStorageReader  # slow to import

    return HuggingFaceStorageReader(str(folder))


# ---- tensors by name, and the rest


def _split_tensors(checkpoint: dict[str, Any]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Splits a checkpoint into the rest and the named tensors of networks and optimizers."""
    tensors = {f"state_dict/{name}": value.contiguous() for name, value in checkpoint["state_dict"].items()}
    optimizers = []
    for number, saved in enumerate(checkpoint.get("optimizer_states", [])):
        others: dict[int, dict[str, Any]] = {}
        for index, values in saved["state"].items():
            for key, value in values.items():
                if isinstance(value, torch.Tensor):
                    tensors[f"optimizer_states/{number}/{index}/{key}"] = value.contiguous()
                else:
                    others.setdefault(index, {})[key] = value
        optimizers.append(saved | {"state": others})
    return checkpoint | {"state_dict": {}, "optimizer_states": optimizers}, tensors


def merge_tensors(rest: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Reverts `_split_tensors`."""
    state_dict: dict[str, torch.Tensor] = {}
    optimizers = [saved | {"state": dict(saved["state"])} for saved in rest["optimizer_states"]]
    for name, value in tensors.items():
        kind, _, name = name.partition("/")
        if kind == "state_dict":
            state_dict[name] = value
        else:
            number, index, key = name.split("/")
            state = optimizers[int(number)]["state"]
            state[int(index)] = state.get(int(index), {}) | {key: value}
    checkpoint = rest | {"state_dict": state_dict, "optimizer_states": optimizers}
    for name, stored in checkpoint.pop(TIED, {}).items():
        state_dict[name] = state_dict[stored]
    return checkpoint
