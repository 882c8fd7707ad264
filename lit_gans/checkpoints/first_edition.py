"""Index of the first edition's sharded checkpoints: a pickle, read without executing code from it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import StorageMeta

_METADATA = ".metadata"
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


class SafeFileSystemReader(FileSystemReader):
    """Torch's reader of sharded checkpoints, whose index is a pickle, restricted to the classes of that index."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        with (Path(self.path) / _METADATA).open("rb") as file:
            metadata = _Index(file).load()
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata
