"""Index of the first edition's sharded checkpoints: a pickle, read without executing code from it."""

from __future__ import annotations

import io
import pickle
import pickletools
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import StorageMeta

from lit_gans.common.reading import read_bounded

_METADATA = ".metadata"
_MOST_BYTES = 2**24  # of that file, which has about 300 for each shard of a tensor
_CLASSES = "torch.distributed.checkpoint.metadata"
# plain containers and values of torch's own index; none of them acts when it is constructed
_ALLOWED = frozenset(
    {
        *((_CLASSES, name) for name in ("Metadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING")),
        *((_CLASSES, f"{name}Metadata") for name in ("TensorStorage", "ChunkStorage", "BytesStorage")),
        (_CLASSES, "TensorProperties"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.serialization", "_get_layout"),
        ("torch", "Size"),
        ("collections", "OrderedDict"),
        *((module, f"{system}Path") for module in ("pathlib", "pathlib._local") for system in ("Posix", "Windows")),
    }
)
_DTYPES = frozenset({"float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"})


class _Index(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED or (module == "torch" and name in _DTYPES):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong in the index of a checkpoint.")


def _refuse_large_memo(content: bytes) -> None:
    """Raises `UnpicklingError` for a position in the memo that no pickle of this length reaches: the unpickler takes
    memory for all positions before it.
    """
    for operation, argument, _ in pickletools.genops(content):
        if operation.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > len(content):
            raise pickle.UnpicklingError("The index of a checkpoint is damaged: its memo is larger than the file.")


class SafeFileSystemReader(FileSystemReader):
    """Torch's reader of sharded checkpoints, whose index is a pickle, restricted to the classes of that index."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        content = read_bounded(Path(self.path) / _METADATA, _MOST_BYTES)
        _refuse_large_memo(content)
        metadata = _Index(io.BytesIO(content)).load()
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata
