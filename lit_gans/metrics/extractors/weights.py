"""Reads the weight files of extractors. Files are verified, and are read without executing code from them."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from lit_gans.checkpoints.torch_files import read_torch_file
from lit_gans.common.errors import RefusedInput, one_line, refusing


def find_weights(weights: str | None, name: str, file: str, url: str) -> Path:
    """Returns the path of a weight file, which is never downloaded.

    Args:
        weights: path of the file; None uses the file `file` in torch hub's cache.
        name: name of the network, for the error message.
        file: name of the file.
        url: URL of the file.

    Raises:
        RefusedInput: `weights` is None and there is no file in the cache. The message contains its URL and destination.
    """
    path = Path(weights).expanduser() if weights else hub_path(file)
    if weights is None and not os.path.isfile(path):
        raise RefusedInput(
            f"the {name} weights are missing: download {url} to {path}, or set its path with"
            " metrics.extractor.weights=PATH."
        )
    return path


def hub_path(file: str) -> Path:
    """Returns the path of a file in torch hub's checkpoint folder, to which other libraries download weights."""
    return Path(torch.hub.get_dir()) / "checkpoints" / file


def read_weights(
    path: Path, sha256: str | None, others: Mapping[str, str] | None = None
) -> tuple[dict[str, Tensor], str]:
    """Reads the state dict of a file, and returns it together with the file's sha256.

    Args:
        path: path of the file.
        sha256: expected sha256; None accepts any file.
        others: for each sha256 of a known file that is not supported, the reason.

    Raises:
        RefusedInput: the file does not have the expected sha256, is not supported, or could execute code.
    """
    if sha256 is not None and not re.fullmatch("[0-9a-f]{64}", sha256):
        raise RefusedInput(
            f"metrics.extractor.sha256={sha256} must have 64 hexadecimal digits in lower case, or be null to accept any"
            " file."
        )
    with refusing(f"{path} cannot be read as weights"), path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if others and actual in others:
        raise RefusedInput(f"{path}: {others[actual]}")
    if sha256 is not None and actual != sha256:
        raise RefusedInput(
            f"{path} has the sha256 {actual}, expected {sha256}: download it again; for your own weights, set"
            " metrics.extractor.sha256=null."
        )
    with refusing(f"{path} cannot be read as weights"):
        is_script = zipfile.is_zipfile(path) and _is_script(path)
    if is_script and sha256 is None:
        raise RefusedInput(
            f"{path} is a TorchScript archive, which can execute code, and is read only if its sha256 is known: set"
            " metrics.extractor.sha256, or save its state dict with torch.save."
        )
    with refusing(f"{path} cannot be read as weights"):
        if is_script:
            # torch deprecates the format, but such weights are published
            with warnings.catch_warnings(action="ignore"):
                return torch.jit.load(path, "cpu").state_dict(), actual
        # The file format of older versions of torch has no checksums, and a file can declare arbitrary tensor sizes.
        # Such a file is therefore read only if its sha256 is known.
        known = sha256 is not None and not zipfile.is_zipfile(path)
        state = torch.load(path, "cpu", weights_only=True) if known else read_torch_file(path, "weights")
    return state, actual


@contextmanager
def refusing_other_weights(path: Path, name: str) -> Iterator[None]:
    """Context manager that converts the error of `load_state_dict` for other weights to `RefusedInput`.

    Args:
        path: path of the weight file, for the error message.
        name: name of the network, for the error message.
    """
    try:
        yield
    except RuntimeError as error:
        lines = str(error).splitlines()
        if not lines[0].startswith("Error(s) in loading state_dict"):
            raise
        first = one_line(lines[1])  # the other lines and names list further tensors
        first = first if first.startswith("size mismatch") else first.partition(", ")[0]
        reason = f"{first[0].lower()}{first[1:].rstrip('.')}"
        raise RefusedInput(f"{path} does not contain the weights of {name}: {reason}.") from error


def _is_script(path: Path) -> bool:
    """Returns whether a zip archive was written by TorchScript, which stores constants beside the tensors."""
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def fold_batch_norms(network: nn.Module) -> None:
    """Folds each batch norm layer into the convolution that is defined before it, and replaces it by `nn.Identity`.

    The folded weights are computed in float64.
    """
    for module in network.eval().modules():
        for (name, conv), (norm_name, norm) in pairwise(list(module.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, name, nn.utils.fuse_conv_bn_eval(conv.double(), norm.double()).float())
                setattr(module, norm_name, nn.Identity())
