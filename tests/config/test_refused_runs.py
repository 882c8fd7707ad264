"""A run that is refused before it began."""

import pytest

from lit_gans.common.errors import RefusedInput
from lit_gans.config.run_folder import own_folder


def test_a_refused_run_leaves_no_empty_folder_and_takes_nothing(tmp_path):
    run = tmp_path / "run"
    with pytest.raises(RefusedInput, match="other data"), own_folder(run):
        raise RefusedInput("other data")
    assert not run.exists()
    (run / "checkpoints").mkdir(parents=True)
    (run / "checkpoints/last.ckpt").touch()
    with pytest.raises(RefusedInput), own_folder(run):
        raise RefusedInput("other data")
    assert sorted(path.name for path in run.rglob("*")) == ["checkpoints", "last.ckpt"]
