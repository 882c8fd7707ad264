"""Reads the weight files of extractors. Files are verified, and are read without executing code from them."""

from __future__ import annotations

import hashlib
import zipfile
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

from lit_gans.checkpoints.torch_files import read_torch_file
from lit_gans.common.errors import RefusedInput, refusing


def read_weights(path: Path, sha256: str | None) -> tuple[dict[str, Tensor], str]:
    """Reads the state dict of a file, and returns it together with the file's sha256.

    Args:
        path: path of the file.
        sha256: expected sha256; None accepts any file.

    Raises:
        RefusedInput: the file does not have the expected sha256, or could execute code.
    """
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 is not None and actual != sha256:
        raise RefusedInput(
            f"{path} has the sha256 {actual}, expected {sha256}: download it again; for your own weights, set"
            " metrics.extractor.sha256=null."
        )
    # The file format of older versions of torch has no checksums, and a file can declare arbitrary tensor sizes.
    # Such a file is therefore read only if its sha256 is known.
    known = sha256 is not None and not zipfile.is_zipfile(path)
    with refusing(f"{path} cannot be read as weights"):
        state = torch.load(path, "cpu", weights_only=True) if known else read_torch_file(path, "weights")
    return state, actual


def fold_batch_norms(network: nn.Module) -> None:
    """Folds each batch norm layer into the convolution that is defined before it, and replaces it by `nn.Identity`.

    The folded weights are computed in float64.
    """
    for module in network.eval().modules():
        for (name, conv), (norm_name, norm) in pairwise(list(module.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, name, nn.utils.fuse_conv_bn_eval(conv.double(), norm.double()).float())
                setattr(module, norm_name, nn.Identity())
