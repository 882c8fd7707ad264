"""Sharded checkpoints, which are folders of several files.

The folder contains the tensor shards of each rank, and the remaining contents of the checkpoint in `rest.pt`. The
commit marker `commit.json` is written last. It lists all other files with their sizes and checksums.
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
TIED = "tied"  # key in `rest.pt` of a dict that maps each further name of a tied tensor to its stored name
_BLOCK = 2**20  # number of bytes that are read at a time
Entry = tuple[int, int]  # size in bytes and CRC-32 of a file


# ---- writing


def write_sharded(
    checkpoint: dict[str, Any], path: str | Path, strategy: ParallelStrategy, tied: dict[str, str]
) -> None:
    """Writes a checkpoint as a folder. Each rank writes its shards of DTensors. All ranks must call this function.

    Args:
        checkpoint: Lightning checkpoint.
        path: path or URL of the folder.
        strategy: training strategy, through which the ranks communicate.
        tied: dict that maps each further name of a tied parameter or buffer to its first name, because safetensors does
            not store a tensor twice.

    Raises:
        FailedWrite: a file cannot be written. A folder that already exists at a local `path` is not changed.
    """
    import torch.distributed.checkpoint as dcp  # imported here, because the import is slow

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
    """Yields the same new folder on all ranks. Once all ranks have written to it, the folder replaces `path`.

    Each rank computes the checksums of its files. The commit marker, which lists all checksums, is written last.

    Raises:
        FailedWrite: a file cannot be written. The new folder is then removed, and `path` is not changed.
    """
    from torch.distributed.checkpoint.api import CheckpointException  # imported here, because the import is slow

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
    """Yields a temporary folder on each rank. Once all ranks have written to it, its files replace the files at a URL.

    Files at a URL cannot be renamed. The checkpoint is therefore incomplete until the commit marker has been uploaded,
    which happens last.

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
            local_entries = checksums(Path(name))
            _send(remote, Path(name), local_entries)
            entries = _gathered(local_entries, strategy)  # also waits until all ranks have uploaded their files
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


def _gathered(local_entries: dict[str, Entry], strategy: ParallelStrategy) -> dict[str, Entry]:
    """Gathers the entries of all ranks, and merges them."""
    shares = [local_entries]
    if strategy.world_size > 1:
        shares = [{}] * strategy.world_size
        dist.all_gather_object(shares, local_entries)
    return {name: entry for share in shares for name, entry in share.items()}


def checksums(folder: Path, rank: int = 0, world_size: int = 1) -> dict[str, Entry]:
    """Returns the sizes and checksums of this rank's share of the files in a folder, by relative path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != COMMIT)
    return {path.relative_to(folder).as_posix(): _entry(path) for path in files[rank::world_size]}


def write_commit(folder: Path, entries: dict[str, Entry]) -> None:
    """Writes the commit marker, which marks a folder as complete."""
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
    """Reads the contents of a sharded checkpoint other than its tensors.

    Raises:
        RefusedInput: the folder is not a sharded checkpoint, or the file `rest.pt` is damaged.
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
            raise RefusedInput(f"{folder} is damaged: {name} is missing or does not match its checksum.")


def read_index(folder: Path) -> dict[str, Any]:
    """Returns the shapes and data types of the tensors in a sharded checkpoint.

    Raises:
        RefusedInput: the index is damaged.
    """
    with refusing(f"{folder} cannot be read as a sharded checkpoint, because its index is damaged"):
        return dict(_reader(folder).read_metadata().state_dict_metadata)


def read_into(tensors: dict[str, torch.Tensor], folder: Path, no_dist: bool = False) -> None:
    """Reads the tensors of a checkpoint into existing tensors, by name.

    Args:
        tensors: tensors with the shapes in the index of the checkpoint. For a sharded tensor, each rank reads its own
            shard.
        folder: folder of the checkpoint.
        no_dist: whether this process reads without the other ranks. If false, all ranks must call this function.

    Raises:
        RefusedInput: the index is damaged.
    """
    import torch.distributed.checkpoint as dcp  # imported here, because the import is slow

    with refusing(f"{folder} cannot be read as a sharded checkpoint"):
        dcp.load(tensors, storage_reader=_reader(folder), no_dist=no_dist)


def read_sharded(folder: Path) -> dict[str, Any]:
    """Reads a sharded checkpoint as full tensors on the CPU. No code in the checkpoint is executed.

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
    from torch.distributed.checkpoint import HuggingFaceStorageReader  # imported here, because the import is slow

    return HuggingFaceStorageReader(str(folder))


# ---- splitting a checkpoint into named tensors and the remaining contents


def _split_tensors(checkpoint: dict[str, Any]) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Returns a checkpoint without its tensors, and the tensors of networks and optimizers by name."""
    tensors = {f"state_dict/{name}": value.contiguous() for name, value in checkpoint["state_dict"].items()}
    optimizers = []
    for number, saved in enumerate(checkpoint.get("optimizer_states", [])):
        plain_values: dict[int, dict[str, Any]] = {}
        for index, values in saved["state"].items():
            for key, value in values.items():
                if isinstance(value, torch.Tensor):
                    tensors[f"optimizer_states/{number}/{index}/{key}"] = value.contiguous()
                else:
                    plain_values.setdefault(index, {})[key] = value
        optimizers.append(saved | {"state": plain_values})
    return checkpoint | {"state_dict": {}, "optimizer_states": optimizers}, tensors


def merge_tensors(rest: dict[str, Any], tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Inserts the tensors into `rest`, a checkpoint whose tensors were split off by `_split_tensors`."""
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
