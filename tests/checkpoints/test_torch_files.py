"""Files of torch.save: a format that is not read is named."""

import pytest
import torch

from lit_gans.checkpoints.torch_files import read_torch_file
from lit_gans.common.errors import RefusedInput


def test_the_format_of_old_versions_of_torch_is_named(tmp_path):
    torch.save({"weight": torch.ones(2)}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    with pytest.raises(RefusedInput, match=r"as weights: it is in the format of torch before version 1\.6"):
        read_torch_file(tmp_path / "old.pth", "weights")
    (tmp_path / "other.pth").write_bytes(b"GIF89a")
    with pytest.raises(RefusedInput, match="it was not written by torch"):
        read_torch_file(tmp_path / "other.pth")
