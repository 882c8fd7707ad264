"""Weight files of extractors, verified and read without executing code from them."""

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
    """Reads the state dict of a file and returns it with the file's sha256.

    Args:
        path: path of the file.
        sha256: expected sha256; None accepts any file.

    Raises:
        RefusedInput: the file has another sha256, or could execute code.
    """
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if sha256 is not None and found != sha256:
        raise RefusedInput(
            f"{path} has the sha256 {found}, expected {sha256}: fetch it again; for weights of your own give"
            " metrics.extractor.sha256=null."
        )
    # files of older versions of torch have no checksums, and claim sizes of their own: only known ones are read
    known = sha256 is not None and not zipfile.is_zipfile(path)
    with refusing(f"{path} cannot be read as weights"):
        state = torch.load(path, "cpu", weights_only=True) if known else read_torch_file(path, "weights")
    return state, found


def fold_batch_norms(network: nn.Module) -> None:
    """Folds each batch norm into the convolution defined before it, in float64; replaces it by the identity."""
    for module in network.eval().modules():
        for (name, conv), (norm_name, norm) in pairwise(list(module.named_children())):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                setattr(module, name, nn.utils.fuse_conv_bn_eval(conv.double(), norm.double()).float())
                setattr(module, norm_name, nn.Identity())
