"""What the check reads of tensors: digests, which differ if any bit differs, and projections to a single number."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any, TypeGuard

import torch
from torch import Tensor

_ROWS = 128  # maximum number of rows of an input that are read
_FEWEST = 4  # minimum size of a row: smaller rows, such as labels, are often equal on two ranks by chance
_FEWEST_INTEGERS = 16  # the same for integers, such as token ids: labels of several classes are often equal, too
_TENSORS = 16  # maximum number of tensors of an input, such as a batch that is a list, that are read


def is_sharded(tensor: Tensor) -> bool:
    """Returns whether this rank holds only a shard of a tensor, or the tensor is part of a flat parameter."""
    placements = getattr(tensor, "placements", None)
    if placements is not None:
        return not all(placement.is_replicate() for placement in placements)
    return type(tensor).__name__ == "FlatParameter" or hasattr(tensor, "ds_id")


def _dense(tensor: Tensor) -> Tensor:
    """Returns the detached values of a tensor, which can be sparse or a replicated DTensor, as a dense tensor."""
    values = tensor.detach()
    values = values.to_local() if hasattr(values, "to_local") else values
    return values if values.layout == torch.strided else values.to_dense()


def projection(tensor: Tensor) -> float:
    """Projects a tensor onto a fixed direction, which depends only on the number of elements."""
    values = _dense(tensor).double().flatten()
    direction = torch.arange(1, values.numel() + 1, device=values.device, dtype=torch.double).mul_(0.7).cos_()
    return float(values @ direction)


def any_nonzero(tensor: Tensor) -> bool:
    """Returns whether a tensor has a value other than 0."""
    return bool(_dense(tensor).any())


def is_whole(tensor: Tensor) -> bool:
    """Returns whether all values of a tensor are integers."""
    if not tensor.is_floating_point():
        return not tensor.is_complex()
    values = _dense(tensor)
    return bool((values == values.round()).all())


def digest(tensor: Tensor) -> str:
    """Returns a digest of the values of a tensor."""
    # copies the values, because a NumPy view would keep FSDP from freeing the memory
    values = _dense(tensor).cpu().clone(memory_format=torch.contiguous_format).reshape(-1)
    return hashlib.blake2b(values.view(torch.uint8).numpy().data if values.numel() else b"", digest_size=8).hexdigest()


def digest_of(texts: Iterable[str]) -> str:
    """Returns a digest of several texts."""
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def random_state() -> str:
    """Returns a digest of torch's random number generators."""
    state = torch.get_rng_state()
    if torch.cuda.is_initialized():
        state = torch.cat([state, torch.cuda.get_rng_state()])
    return hashlib.blake2b(state.numpy().data, digest_size=8).hexdigest()


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yields the tensors in a value that can be a list, tuple, dict or dataclass, or contain them."""
    if isinstance(value, Tensor):
        yield value
        return
    inner: Iterable[Any] = ()
    if isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, list | tuple):
        inner = value
    elif is_dataclass(value):
        inner = (getattr(value, each.name, None) for each in fields(value))
    for each in inner:
        yield from tensors_in(each)


def has_rows(value: Any) -> TypeGuard[Tensor]:
    """Returns whether a value is a batch of images, latents or tokens."""
    return (
        isinstance(value, Tensor)
        and value.dtype != torch.bool
        and not value.is_complex()
        and value.dim() > 1
        and len(value) > 0
        and value.shape[1:].numel() >= (_FEWEST if value.is_floating_point() else _FEWEST_INTEGERS)
        and not value.is_meta
        and not is_sharded(value)
    )


def batches_in(value: Any) -> list[Tensor]:
    """Returns the first tensors in a value that are batches of images, latents or tokens."""
    return [*islice(filter(has_rows, tensors_in(value)), _TENSORS)]


def digests_of_rows(images: Tensor) -> Iterator[str]:
    """Yields a digest of each of the first rows."""
    for row in images[:_ROWS].detach():
        yield digest(row.reshape(-1))
